"""Offloaded layers: the same tokens, whatever is kept elsewhere, and really less memory."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from engines.native import offload
from engines.native.config import ConfigError, EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.offline import Offline
from engines.native.ops.torch_ops import TorchOps
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, runner_for
from tests.engines.models import harness
from tests.engines.weights import smollm2

KINDS = {
    "llama": {"num_hidden_layers": 5},
    "gemma2": {"num_hidden_layers": 4, "sliding_window": 16},
    "mixtral": {"num_hidden_layers": 4, "num_local_experts": 4},
    "deepseek_v2": {
        "num_hidden_layers": 4, "num_key_value_heads": 6, "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2,
        "topk_group": 1, "topk_method": "group_limited_greedy", "moe_intermediate_size": 20, "n_shared_experts": 1,
        "first_k_dense_replace": 1, "norm_topk_prob": False,
    },
}  # fmt: skip


def _runner(paths: dict[str, str], **fields) -> ModelRunner:
    config = EngineConfig(
        format="safetensors", paths=paths, device="cpu", dtype="float32", max_num_seqs=4, max_batched_tokens=256,
        block_size=8, **fields,
    )  # fmt: skip
    return runner_for(open_model("safetensors", paths), config)


@pytest.mark.parametrize(("kind", "to"), [*((kind, "disk") for kind in KINDS), ("llama", "host")])
def test_logits_are_those_of_transformers(tmp_path, kind, to):
    """All layers offloaded; of llama's also some, spread among those that stay."""
    model = harness.transformers_model(kind, kind, **KINDS[kind])
    paths = harness.saved(model, tmp_path)
    layers = KINDS[kind]["num_hidden_layers"]
    for count in {layers, 3} if to == "host" else {layers}:
        runner = _runner(paths, offload_layers=count, offload_to=to)
        assert runner.model.offloaded
        assert sum(isinstance(each, offload.OffloadedLayer) for each in runner.model.weights.layers) == count
        harness.check(runner, harness.reference_of(model))


@pytest.mark.parametrize("to", ["host", "disk"])
def test_requests_side_by_side_get_the_same_tokens(tmp_path, to):
    """Chunked prefill, chunks that end nowhere, rows that come and go: through the scheduler."""
    paths = harness.saved(harness.transformers_model("llama", "side", num_hidden_layers=5), tmp_path)
    prompts = [harness.token_ids(seed, length) for seed, length in enumerate((3, 40, 17, 90, 26))]
    params = SamplingParams(temperature=0, max_tokens=12)

    def tokens(**fields) -> list[list[int]]:
        config = EngineConfig(
            format="safetensors", paths=paths, device="cpu", dtype="float32", max_num_seqs=3, max_batched_tokens=24,
            block_size=8, **fields,
        )  # fmt: skip
        return [each.token_ids for each in Offline(config).generate(prompts, params)]

    assert tokens(offload_layers=5, offload_to=to) == tokens()


class _Steps:
    """Layers of a byte each: `run` computes with all of them, as OffloadedBlock does."""

    def __init__(self, count: int, fills: list[offload.Fill] | None = None) -> None:
        self.slots = [torch.zeros(8, dtype=torch.uint8) for _ in range(offload.SLOTS)]
        self.filling: list[int] = []
        plain = [self._writer(position) for position in range(count)]
        self.prefetcher = offload.Prefetcher(fills or plain, self.slots)

    def _writer(self, position: int) -> offload.Fill:
        def fill(slot: torch.Tensor) -> None:
            slot.fill_(255)  # half-written
            time.sleep(0.0005)
            slot.fill_(position)

        return fill

    def run(self, positions) -> None:
        for position in positions:
            slot = self.prefetcher.acquire(position)
            for _ in range(3):
                assert (self.slots[slot] == position).all()
                time.sleep(0.0003)
            self.prefetcher.release()
            self.prefetcher.release()  # a second time does nothing


@pytest.mark.parametrize("count", [3, 4, 5])
def test_bytes_are_there_while_they_are_used_and_only_then_written_over(count):
    steps = _Steps(count)
    for _ in range(4):
        steps.run(range(count))
    steps.run(range(count - 1))  # a step that broke off
    steps.run(range(count))
    slot = steps.prefetcher.acquire(0)  # a last layer without `release`, as in a chunk that ends nowhere
    assert (steps.slots[slot] == 0).all()
    steps.run(range(1, count))
    steps.run([1, 2, 1, 0])  # in no order


def test_the_next_layer_comes_while_one_computes():
    begun = [threading.Event() for _ in range(3)]

    def filler(position: int) -> offload.Fill:
        def fill(slot: torch.Tensor) -> None:
            begun[position].set()

        return fill

    steps = _Steps(3, [filler(position) for position in range(3)])
    steps.prefetcher.acquire(0)
    assert begun[1].wait(5)  # without anybody asking for it
    assert not begun[2].is_set()  # both slots are taken
    steps.prefetcher.release()
    assert begun[2].wait(5)


def test_a_layer_that_cannot_be_read_fails_its_step_and_no_other():
    broken = threading.Event()
    broken.set()

    def read(slot: torch.Tensor) -> None:
        if broken.is_set():
            raise OSError("the disk is gone")
        slot.fill_(1)

    steps = _Steps(3, [lambda slot: slot.fill_(0), read, lambda slot: slot.fill_(2)])
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            steps.run(range(3))
    broken.clear()
    steps.run(range(3))
    steps.run(range(3))


def test_a_layer_goes_into_a_buffer_and_out_again(tmp_path):
    """Every kind of layer; and views, so that other bytes are another layer."""
    for kind, changes in KINDS.items():
        folder = tmp_path / kind
        paths = harness.saved(harness.transformers_model(kind, kind, **changes), folder)
        for layer in _runner(paths, offload_layers=3).model.weights.layers:
            if not isinstance(layer, offload.OffloadedLayer):
                continue
            layer.owner._fills[layer.position](buffer := torch.zeros(layer.layout.nbytes, dtype=torch.uint8))
            structure, tensors = offload.apart(layer.layout.views(buffer))
            assert structure == layer.layout.structure
            assert len(tensors) > 4
            torch.testing.assert_close(tensors[0], layer.input_norm)
            buffer.zero_()
            assert all((tensor == 0).all() for tensor in tensors)


@pytest.mark.parametrize("nbytes", [1, 2**20, 2**20 + 1, 5 * 2**20 + 7, 436_219_904])
def test_pinned_pieces_waste_little(nbytes):
    sizes = offload.piece_sizes(nbytes)
    assert sum(sizes) == nbytes
    assert all(size.bit_count() == 1 for size in sizes[:-1])
    assert sum(1 << (size - 1).bit_length() for size in sizes) - nbytes < offload.LEAST_PIECE


class _GraphOps(TorchOps):
    asked = 0

    def graphs(self, model, rows, sampler):
        type(self).asked += 1


def test_decode_graphs_are_not_asked_for(tmp_path, monkeypatch, caplog):
    paths = harness.saved(harness.transformers_model("llama", "graphs"), tmp_path)
    monkeypatch.setattr("engines.native.runner.make_ops", lambda name: _GraphOps())
    with caplog.at_level("INFO", "engines.native.offload"):
        layers = _runner(paths, offload_layers=3).model.weights.layers
    assert offload.pinned(layers) == []  # there is no GPU: what lies in memory is the instance's own
    assert _GraphOps.asked == 0
    assert "decode steps run without graphs" in caplog.text
    _runner(paths)
    assert _GraphOps.asked == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"offload_layers": 2}, r"offload_layers is 2; two offloaded layers .* 0, or 3 to 3"),
        ({"offload_layers": 4}, r"offload_layers is 4.* 0, or 3 to 3"),
        ({"offload_layers": 3, "dtype": "int8"}, "offload_layers is 3, but dtype int8"),
        ({"offload_layers": 3, "strict": True}, "set offload_layers to 0"),
        ({"offload_to": "tape"}, "offload_to is 'tape'; it can be host, disk"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path, fields, said):
    paths = harness.saved(harness.transformers_model("llama", "refused"), tmp_path)
    with pytest.raises(ConfigError, match=said):
        runner_for(
            open_model("safetensors", paths),
            EngineConfig(format="safetensors", paths=paths, **{"device": "cpu", "dtype": "float32", **fields}),
        )


_MEASURE = """
import sys
from engines.native.config import EngineConfig
from engines.native.offline import Offline
from engines.native.request import SamplingParams
path, count, to = sys.argv[1:]
engine = Offline(EngineConfig(format="gguf", paths={"m.gguf": path}, device="cpu", dtype="float32", max_model_len=512,
                              max_num_seqs=2, kv_cache_bytes=60_000_000, threads=1, offload_layers=int(count),
                              offload_to=to))
prompts = [list(range(100, 180)), list(range(700, 760))]
found = engine.generate(prompts, SamplingParams(temperature=0, max_tokens=3))
for k, v in engine.runner.model.kv:  # a cache in use has every page touched
    k.fill_(1), v.fill_(1)
status = dict(line.split(":") for line in open("/proc/self/status"))
print(int(status["VmRSS"].split()[0]) * 1024, engine.runner.sizes.plan.total, [each.token_ids for each in found])
"""


def _measured(count: int, to: str) -> tuple[int, int, str]:
    """Bytes resident while it serves, bytes planned, and the greedy tokens."""
    command = [sys.executable, "-W", "ignore", "-c", _MEASURE, str(smollm2()), str(count), to]
    used, planned, tokens = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(" ", 2)
    return int(used), int(planned), tokens


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.timeout(600)
def test_a_model_on_disk_takes_less_memory_and_gives_the_same_tokens():
    """All 30 layers, 405 MiB in float32, of the demo model."""
    with ThreadPoolExecutor(2) as threads:
        whole, disk = threads.map(_measured, (0, 30), ("host", "disk"))
    assert disk[2] == whole[2]
    assert disk[0] < whole[0] - 300 * 2**20
    for used, planned, _ in (whole, disk):
        assert planned == pytest.approx(used, rel=0.15)


def test_offloaded_layers_are_spread():
    def spread(layers: int, count: int) -> list[int]:
        return offload.Offload(lambda index: None, torch.device("cpu"), layers=layers, count=count, to="host").indices

    assert spread(32, 8) == list(range(0, 32, 4))
    for layers, count in itertools.product((3, 30, 61), (3, 7, 30)):
        if count <= layers:
            assert len(set(spread(layers, count))) == count
            assert max(spread(layers, count)) < layers
