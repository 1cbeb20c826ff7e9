"""A KV cache in 8 bits through the whole engine: what is written is read, everything that moves a block moves its
scales, and what can't be is refused by name."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engines.native import kv_cache, memory, memory_table
from engines.native.config import ConfigError, EngineConfig
from engines.native.disk_setup import facts
from engines.native.kv_cache import calibrate
from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import open_model
from engines.native.offline import Offline
from engines.native.ops.quantized_kv_torch import QuantizedKvOps, StrictQuantizedKvOps
from engines.native.ops.torch_ops import TorchOps
from engines.native.quant.scheme import KvScheme
from engines.native.quantized_kv import Fp8Pool, Int8Pool, QuantizedPool, planes
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, runner_for
from engines.native.sizes import sizes_of
from engines.native.state import kv_plane
from engines.native.swap_costs import measure
from evaluation.benchmarks import kv_accuracy
from evaluation.benchmarks.random_model import TINY, greedy, random_runner
from tests.engines.models import harness
from tests.engines.test_disk_setup import GREEDY, PATIENCE_S, config
from tests.engines.test_memory import LLAMA8B, SMOLLM2
from tests.engines.test_strict import HEADS, KV_HEADS, SIZE, batch_of
from tests.engines.weights import smollm2

KINDS = ["fp8", "int8"]
BLOCKS, BLOCK = 24, 8
CPU = torch.device("cpu")


def pool_of(kind: str, seed: int) -> QuantizedPool:
    """Every place written, as the runner's pools lie on a CPU."""
    generator = torch.Generator().manual_seed(seed)
    values = kv_plane(BLOCKS, KV_HEADS, BLOCK, (SIZE,), torch.int8, CPU)
    pool: QuantizedPool
    if kind == "fp8":
        pool = Fp8Pool(values, torch.rand(KV_HEADS, generator=generator) / 40 + 0.01, torch.float32)
    else:
        pool = Int8Pool(values, kv_plane(BLOCKS, KV_HEADS, BLOCK, (), torch.float32, CPU), torch.float32)
    pool.write(torch.arange(BLOCKS * BLOCK), torch.randn(BLOCKS * BLOCK, KV_HEADS, SIZE, generator=generator))
    return pool


def meant(pool: QuantizedPool) -> torch.Tensor:
    if isinstance(pool, Fp8Pool):
        found = pool.values.contiguous().view(torch.float8_e4m3fn).float() * pool.scales[:, None, None]
    else:
        found = pool.values.float() * pool.scales[..., None]
    return found.transpose(0, 1).contiguous().transpose(0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_is_to_the_nearest_and_large_values_are_cut_off(kind):
    pool = pool_of(kind, 1)
    x = torch.randn(3, KV_HEADS, SIZE)
    x[0, 0, 0], x[1] = 1e6, 0
    pool.write(torch.tensor([9, 50, 17]), x)
    read = meant(pool)[torch.tensor([1, 6, 2]), :, torch.tensor([1, 2, 1])]
    assert read.isfinite().all()
    assert not read[1].any()
    if kind == "fp8":
        assert read[0, 0, 0] == 448 * pool.scales[0]
        assert ((read[2] - x[2]).abs() <= x[2].abs() / 16 + pool.scales[:, None] / 512).all()
    else:
        assert read[0, 0, 0] == pytest.approx(1e6)
        assert ((read[2] - x[2]).abs() <= x[2].abs().amax(-1, keepdim=True) / 253).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("softcap", [0.0, 1.5])
@pytest.mark.parametrize(
    ("rows", "tables"),
    [
        ([(0, 19), (30, 1), (13, 9)], [[3, 1, 2], [9, 8, 7, 6], [12, 14, 13]]),
        ([(18, 1), (30, 1), (4, 1)], [[3, 1, 2], [9, 8, 7, 6], [12]]),
        ([(20, 1)], [[4, 5, 6]]),
    ],
    ids=["mixed", "decodes together", "in a run"],
)
@pytest.mark.parametrize("window", [0, 5])
def test_attention_is_that_over_what_the_pools_stand_for(rows, tables, kind, softcap, window):
    keys, values = pool_of(kind, 1), pool_of(kind, 2)
    q = torch.randn(sum(count for _, count in rows), HEADS, SIZE)

    def attend(ops: TorchOps, k: Any, v: Any) -> torch.Tensor:
        batch = batch_of(rows, tables)
        if softcap:
            return ops.capped_attention(q, k, v, batch, 0.25, window, softcap)
        return ops.attention(q, k, v, batch, 0.25, window)

    wanted = attend(TorchOps(), meant(keys), meant(values))
    torch.testing.assert_close(attend(QuantizedKvOps(), keys, values), wanted)
    torch.testing.assert_close(attend(StrictQuantizedKvOps(), keys, values), wanted)


def tiny(kind: str, seed: int = 5, **changes: Any) -> ModelRunner:
    return random_runner(TINY, config(kv_cache_dtype=kind, **changes), seed=seed)


PROMPTS = [[7 + number, *range(30)] for number in range(2)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_says_nearly_what_it_says_with_a_plain_cache(kind):
    """Log-probabilities of greedy tokens, chunks and decodes."""
    tokens, exact = greedy(tiny("auto"), PROMPTS, 4)
    runner = tiny(kind)
    assert isinstance(runner.model.kv[0][0], Fp8Pool if kind == "fp8" else Int8Pool)
    _, found = greedy(runner, PROMPTS, 4)
    difference = (torch.tensor(found)[:, 0] - torch.tensor(exact)[:, 0]).abs().max()
    assert 0 < difference < (0.2 if kind == "fp8" else 0.05), tokens


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_prefixes_and_recomputing_give_the_same_tokens(kind):
    """On a CPU a token attends to what was rounded, its own prompt's too, so nothing depends on where a chunk ends."""
    params = SamplingParams(temperature=0, max_tokens=12, prompt_logprobs=0)
    whole = Offline(config(), tiny(kind)).generate(PROMPTS, params)
    narrow = config(max_batched_tokens=10)
    cut = Offline(narrow, tiny(kind, max_batched_tokens=10)).generate(PROMPTS, params)
    engine = Offline(config(), tiny(kind))
    engine.generate(PROMPTS, params)
    again = engine.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=12))
    assert min(one.cached_tokens for one in again) >= 24
    for one, other, third in zip(whole, cut, again, strict=True):
        assert one.token_ids == other.token_ids == third.token_ids
        assert one.prompt_logprobs == pytest.approx(other.prompt_logprobs, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_strict_mode_keeps_its_promise(kind):
    """The same bits alone and in company: `strict.verify` tries it out when a strict engine is built."""
    from engines.native import strict

    strict.verify(tiny(kind, ops="strict"))


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_copied_and_swapped_with_their_scales(kind):
    runner = tiny(kind, swap_space_bytes=1 << 16)
    lines = [plane for layer in runner.model.kv for plane in planes(*layer)]
    assert len(lines) == TINY.layers * (2 if kind == "fp8" else 4)
    for number, plane in enumerate(lines):
        plane.copy_((torch.arange(plane.numel()).view(plane.shape) % 113 + number).to(plane.dtype))
    before = [plane.clone() for plane in lines]
    runner.copy_blocks([(2, 5)])
    runner.swap_out([(3, 1), (4, 2)])
    for plane in lines:
        plane[3:5] = 0
    runner.swap_in([(1, 6), (2, 7)])
    for plane, old in zip(lines, before, strict=True):
        assert torch.equal(plane[5], old[2])
        assert torch.equal(plane[6:8], old[3:5])


def test_a_disk_takes_blocks_back_with_their_scales_and_only_where_they_mean_the_same(tmp_path: Path):
    def engine(kind: str, seed: int = 5) -> Offline:
        chosen = config(kv_disk_path=str(tmp_path), kv_cache_dtype=kind)
        runner = random_runner(TINY, chosen, seed=seed)
        runner.swap_costs, runner.swap_min_tokens = measure(runner, 40), 1
        made = Offline(chosen, runner)
        assert made.scheduler.host.disk is not None
        made.scheduler.host.disk.min_tokens, made.scheduler.host.disk._compute_s = 1, PATIENCE_S
        return made

    first = engine("int8")
    said = first.generate(PROMPTS, GREEDY)
    first.close()
    again = engine("int8")
    answers = again.generate(PROMPTS, GREEDY)
    again.close()
    assert [answer.cached_tokens for answer in answers] == [24, 24]
    assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in said]
    other = engine("fp8")
    assert other.generate(PROMPTS[:1], GREEDY)[0].cached_tokens == 0
    other.close()


def test_what_a_block_means_depends_on_kind_and_fixed_scales():
    runner = tiny("fp8")
    known = facts(config(kv_cache_dtype="fp8"), runner)
    assert facts(config(), runner) == known, "asked for or taken from the checkpoint: the same bytes"
    assert facts(config(), tiny("int8")) != known
    assert facts(config(), tiny("auto")) != known
    keys = runner.model.kv[0][0]
    assert isinstance(keys, Fp8Pool)
    keys.scales = keys.scales * 2
    assert facts(config(), runner) != known


@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_is_what_the_pools_take(kind):
    runner = tiny(kind)
    measured = {part["part"]: part for part in memory_table.table(runner)["parts"]}["kv_cache"]
    scales = TINY.layers * 2 * 4 if kind == "fp8" else 0  # that belong to no block
    assert measured["bytes"] - scales == measured["planned"] == runner.sizes.plan.kv_cache
    assert memory_table.table(runner)["kv_cache_dtype"] == kind
    assert runner.num_blocks > 1.5 * tiny("auto", dtype="bfloat16").num_blocks


def test_bytes_of_a_token():
    assert memory.kv_bytes_per_token(LLAMA8B, "bfloat16", "fp8") == 65_536
    assert memory.kv_bytes_per_token(LLAMA8B, "bfloat16", "int8") == 65_536 + 2 * 32 * 8 * 4
    assert memory.kv_bytes_per_token(SMOLLM2, "float32", "fp8") == 2 * 30 * 3 * 64


def test_the_plan_has_room_for_keys_that_a_gpu_widens():
    def planned(kind: str, batched: int) -> int:
        demand = memory.demand_of(
            LLAMA8B, device="cuda", dtype="bfloat16", max_model_len=8192, max_num_seqs=64, max_batched_tokens=batched,
            block_size=16, kv_cache_bytes=0, kv_cache_dtype=kind,
        )  # fmt: skip
        return memory.activation_bytes(LLAMA8B, demand)

    around, mlp, keys = 2048 * (3 * 4096 + 2 * 1024), 2048 * 3 * 14_336, 65_536 * 2 * 1024
    assert planned("fp8", 2048) - planned("auto", 2048) == 2 * (around + keys - mlp)
    assert planned("fp8", 16_384) == planned("auto", 16_384), "the gated MLP of so many tokens takes more"


def test_what_can_not_be_is_refused_by_name():
    with pytest.raises(ConfigError, match="kv_cache_dtype is 'int4'; it can be auto, fp8, int8"):
        config(kv_cache_dtype="int4")
    latent = replace(memory.dimensions(TINY), kv_values=576 * 27, architecture="deepseek_v2")
    asked: dict[str, Any] = {
        "device": "cpu", "dtype": "float32", "max_model_len": 0, "max_num_seqs": 1, "max_batched_tokens": 0,
        "block_size": 16, "kv_cache_bytes": 0,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="kv_cache_dtype is 'fp8', but the latent attention of deepseek_v2"):
        memory.demand_of(latent, **asked, kv_cache_dtype="fp8")
    assert memory.demand_of(latent, **asked).kv_cache_dtype == ""


def test_a_checkpoints_scheme_that_cannot_be_followed_is_left_with_a_warning(caplog):
    kv, odd = KvScheme("float"), replace(TINY, head_dim=TINY.head_dim - 1)
    with caplog.at_level(logging.WARNING, "engines.native.sizes"):
        assert sizes_of(TINY, config(), CPU, kv=kv).kv_cache_dtype == "fp8"
        assert caplog.text == ""
        assert sizes_of(odd, config(), CPU, kv=kv).kv_cache_dtype == ""
    assert f"a head has {odd.head_dim} values" in caplog.text
    with pytest.raises(ConfigError, match=r"kv_cache_dtype is 'fp8', but a head has .*; set it to 'auto'"):
        sizes_of(odd, config(kv_cache_dtype="fp8"), CPU, kv=kv)


def test_a_cpu_has_room_for_a_long_row_that_is_read_as_floats():
    def planned(kind: str, length: int) -> int:
        demand = memory.demand_of(
            LLAMA8B, device="cpu", dtype="float32", max_model_len=length, max_num_seqs=2, max_batched_tokens=512,
            block_size=16, kv_cache_bytes=0, kv_cache_dtype=kind,
        )  # fmt: skip
        return memory.activation_bytes(LLAMA8B, demand)

    assert planned("int8", 8192) == planned("auto", 8192)
    assert planned("int8", 65_536) - planned("auto", 65_536) == 2 * 1024 * 4 * (65_536 - memory.GATHERED_KEYS)


def test_calibrated_scales_give_each_head_twice_what_it_showed():
    runner = tiny("auto")
    ids = torch.randint(TINY.vocab, (40,), generator=torch.Generator().manual_seed(1))
    scales = calibrate(runner.config, runner.model.weights, ids, torch.float32, CPU)
    runner.add(0, ids.tolist(), SamplingParams(temperature=0), len(ids))
    tokens, _ = greedy(runner, [ids.tolist()], 1)
    assert tokens
    for (keys, values), pools in zip(scales, runner.model.kv, strict=True):
        for scale, pool in ((keys, pools[0]), (values, pools[1])):
            greatest = pool[1:6].abs().amax((0, 2, 3))  # type: ignore[union-attr]
            torch.testing.assert_close(scale * kv_cache.FP8_MOST, 2 * greatest)


def quantized_cache(tmp_path: Path, scales: dict[str, float], kind: str = "float") -> dict[str, str]:
    """Paths of a tiny llama whose checkpoint says that its KV cache has 8 bits. scales: k or v → of every layer."""
    model = harness.transformers_model("llama", "kv")
    paths = harness.saved(model, tmp_path)
    said = json.loads(Path(paths["config.json"]).read_text())
    said["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {}, "ignore": [],
        "kv_cache_scheme": {"num_bits": 8, "type": kind, "strategy": "tensor", "dynamic": False, "symmetric": True},
    }  # fmt: skip
    Path(paths["config.json"]).write_text(json.dumps(said))
    tensors = load_file(paths["model.safetensors"])
    for layer in range(said["num_hidden_layers"]):
        for name, scale in scales.items():
            tensors[f"model.layers.{layer}.self_attn.{name}_scale"] = torch.tensor([scale])
    save_file(tensors, paths["model.safetensors"], metadata={"format": "pt"})
    return paths


def loaded(paths: dict[str, str], **fields: Any) -> ModelRunner:
    chosen = EngineConfig(
        format="safetensors", paths=paths, device="cpu", dtype="float32", max_num_seqs=2, max_batched_tokens=64,
        block_size=8, **fields,
    )  # fmt: skip
    return runner_for(open_model("safetensors", paths), chosen)


def test_a_checkpoints_scheme_and_scales_are_followed(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "engines.native.kv_cache"):
        runner = loaded(quantized_cache(tmp_path, {"k": 0.03, "v": 0.02}))
    assert runner.sizes.kv_cache_dtype == "fp8"
    keys, values = runner.model.kv[-1]
    assert isinstance(keys, Fp8Pool)
    assert isinstance(values, Fp8Pool)
    assert keys.scales.tolist() == pytest.approx([0.03] * runner.config.kv_heads)
    assert values.scales.tolist() == pytest.approx([0.02] * runner.config.kv_heads)
    assert caplog.records == []
    assert loaded(quantized_cache(tmp_path, {}, "int"), kv_cache_dtype="int8").sizes.kv_cache_dtype == "int8"


@pytest.mark.parametrize("scales", [{"k": 1.0, "v": 1.0}, {}], ids=["all 1.0", "missing"])
def test_vllm_12076_scales_that_nobody_measured_are_measured_with_a_warning(tmp_path, caplog, scales):
    with caplog.at_level(logging.WARNING, "engines.native.kv_cache"):
        runner = loaded(quantized_cache(tmp_path, scales))
    [warning] = [record.getMessage() for record in caplog.records if record.name == "engines.native.kv_cache"]
    assert ("are 1.0" if scales else "scales for 0 of") in warning
    keys, _ = runner.model.kv[0]
    assert isinstance(keys, Fp8Pool)
    assert len(set(keys.scales.tolist())) == runner.config.kv_heads, "one scale for each head, from what it showed"


def test_scales_that_nothing_can_be_divided_by_are_refused_with_the_layer(tmp_path):
    with pytest.raises(BadModel, match=r"v_scale of layer 0 is \[0.0\]; scales are positive numbers"):
        loaded(quantized_cache(tmp_path, {"k": 0.5, "v": 0.0}))


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize(("kind", "most"), [("int8", 1.005), ("fp8", 1.03)])
def test_perplexity_of_the_demo_model(kind, most):
    """Two windows of those that docs/benchmarks/kv_accuracy.cpu.json has 20 of."""
    known = kv_accuracy.reference(2)
    total = sum(kv_accuracy.sums(smollm2(), kind, known, 256))
    assert math.exp(total / known["scored"]) / known["perplexity"] < most
