"""The memory estimate: its arithmetic, its sentences, and the real use of the demo model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import pytest

from engines.api import Draft, Fit, LaunchSpec, ModelFile, ModelShape, get_engine
from engines.native import memory
from engines.native.graph_buckets import rows_bucket
from engines.native.speculation.budget import WIDTHS
from engines.native.speculation.speculator import GRAPH_TOKENS, PASS_TOKENS
from engines.native.speculation.tree import MAX_NODES
from tests.engines.weights import smollm2
from tests.side_by_side import side_by_side

SMOLLM2 = ModelShape("llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 134_515_008, True)
LLAMA8B = ModelShape("llama", 32, 4096, 14336, 32, 8, 128, 128_256, 131_072, 8_030_261_248)
LLAMA70B = ModelShape("llama", 80, 8192, 28672, 64, 8, 128, 128_256, 131_072, 70_553_706_496)
GIB = 2**30


def _fit(shape: ModelShape, available: int, **spec: object) -> Fit:
    return get_engine("native").fit(shape, LaunchSpec("id", "name", [], "gguf", **spec), 0, available)  # type: ignore[arg-type]


def test_kv_bytes_per_token():
    assert memory.kv_bytes_per_token(SMOLLM2, "float32") == 2 * 30 * 3 * 64 * 4
    assert memory.kv_bytes_per_token(LLAMA8B, "bfloat16") == 131_072


def test_weights_follow_the_dtype():
    assert _fit(SMOLLM2, 8 * GIB, device="cpu", dtype="float32").weights == 4 * SMOLLM2.parameters
    int8 = _fit(SMOLLM2, 8 * GIB, device="cpu", dtype="auto").weights
    assert int8 == SMOLLM2.parameters + 2 * 49152 * 576  # the table stays beside the int8 head
    assert _fit(LLAMA8B, 100 * GIB, device="cuda").weights == 2 * LLAMA8B.parameters


def test_an_8_bit_table_is_counted():
    table = 49152 * 576
    small = table + 4 * 49152
    options = {"embedding_dtype": "int8"}
    int8 = _fit(SMOLLM2, 8 * GIB, device="cpu", dtype="int8", options=options).weights
    assert int8 == SMOLLM2.parameters - table + table + small  # the head keeps its own 8 bits
    shared = _fit(SMOLLM2, 8 * GIB, device="cpu", dtype="float32", options=options).weights
    assert shared == 4 * (SMOLLM2.parameters - table) + small  # table and tied head are one
    table = 128_256 * 4096
    untied = _fit(LLAMA8B, 80 * GIB, device="cuda", options=options).weights
    assert untied == 2 * (LLAMA8B.parameters - table) + table + 4 * 128_256


def test_quantized_weights_are_counted_by_their_bytes_and_by_what_serves_them():
    linear = LLAMA8B.parameters - 2 * 128_256 * 4096
    w4 = msgspec.structs.replace(LLAMA8B, quantized_parameters=linear, quantized_bytes=linear * 17 // 32)

    def fit(shape: ModelShape = w4, format: str = "safetensors", **spec: object) -> Fit:
        launch = LaunchSpec("id", "name", [], format, **{"device": "cuda"} | spec)  # type: ignore[arg-type]
        return get_engine("native").fit(shape, launch, 0, 80 * GIB)

    rest = w4.parameters - linear
    assert fit().weights == 2 * rest + w4.quantized_bytes
    assert fit(dtype="float16").weights == fit().weights  # dtype is that of activations
    assert fit(options={"quantized_weights": "dequantized"}).weights == 2 * w4.parameters
    assert fit(format="gguf").weights == 2 * w4.parameters  # blocks are dequantized unless asked for
    assert fit(format="gguf", options={"quantized_weights": "kept"}).weights == fit().weights
    assert fit(device="cpu").weights == 4 * rest + 2 * linear  # float32, and a CPU's form of the others
    assert fit(dtype="float32").weights == 4 * w4.parameters, "kernels of a GPU take activations of 16 bits"
    assert (
        "dtype is 'int8', but the weights of this version are quantized already"
        in fit(device="cpu", dtype="int8").reason
    )
    assert "offload_layers is 3, but quantized weights" in fit(options={"offload_layers": 3}).reason
    tight = get_engine("native").fit(w4, LaunchSpec("id", "name", [], "safetensors", device="cuda"), 0, 4 * GIB)
    assert not tight.fits
    assert not any("dtype" in line or "offload" in line for line in tight.suggestions)  # what would be refused


def test_a_gpu_has_room_for_the_widest_weight_in_16_bits():
    linear = LLAMA8B.parameters - 2 * 128_256 * 4096

    def planned(parameters: int, **asked: str) -> int:
        shape = msgspec.structs.replace(LLAMA8B, quantized_parameters=parameters, quantized_bytes=parameters // 2)
        demand = memory.demand_of(
            shape, max_model_len=0, max_num_seqs=1, max_batched_tokens=0, block_size=16, kv_cache_bytes=0,
            **{"device": "cuda", "dtype": "auto", **asked},
        )  # fmt: skip
        return memory.activation_bytes(shape, demand)

    assert planned(linear) - planned(0) == 2 * 2 * 14_336 * 4096
    assert planned(linear + 128_256 * 4096) - planned(0) == 2 * 128_256 * 4096, "a head is wider"
    assert planned(linear, dtype="float32") == planned(0, dtype="float32")
    assert planned(linear, device="cpu") == planned(0, device="cpu", dtype="float32")


def test_offloaded_layers_are_counted_where_they_lie():
    table = 128_256 * 4096
    layer = (LLAMA8B.parameters - 2 * table) * 2 // 32
    whole = _fit(LLAMA8B, 80 * GIB, device="cuda", max_num_seqs=4)
    host = _fit(LLAMA8B, 80 * GIB, device="cuda", max_num_seqs=4, options={"offload_layers": 20})
    assert whole.weights - host.weights == 18 * layer  # two slots stay
    assert (whole.host, host.host, host.overhead) == (0, 20 * layer, whole.overhead)
    assert "host memory besides" in host.reason
    disk = {"offload_layers": 20, "offload_to": "disk"}
    assert _fit(LLAMA8B, 80 * GIB, device="cuda", max_num_seqs=4, options=disk).host == layer
    cpu = _fit(LLAMA8B, 80 * GIB, device="cpu", dtype="float32", options=disk)
    assert cpu.weights + 36 * layer == 4 * LLAMA8B.parameters
    assert cpu.host == 0
    assert _fit(LLAMA8B, 80 * GIB, device="cpu", options=disk).weights == cpu.weights  # "auto" is no int8 then
    assert "offload_layers is 2" in _fit(LLAMA8B, 80 * GIB, device="cuda", options={"offload_layers": 2}).reason


def test_kv_cache_takes_what_is_asked_in_whole_blocks():
    fit = _fit(SMOLLM2, 8 * GIB, device="cpu", kv_cache_bytes=100_000_000)
    block = 16 * memory.kv_bytes_per_token(SMOLLM2, "int8")
    assert 0 <= 100_000_000 - fit.kv_cache < block
    assert fit.kv_tokens == fit.kv_cache // block * 16 - 16


def test_gpu_cache_fills_what_is_free():
    small, large = (_fit(LLAMA8B, gib * GIB, device="cuda") for gib in (24, 80))
    assert small.fits
    assert small.total <= 24 * GIB * memory.GPU_SHARE
    assert large.kv_tokens > 5 * small.kv_tokens


@pytest.mark.speculation
def test_a_draft_is_counted_with_a_cache_for_the_same_tokens():
    draft = Draft([], "gguf", SMOLLM2)
    asked = {"device": "cuda", "max_model_len": 8192, "max_num_seqs": 16}
    alone, both = _fit(LLAMA8B, 24 * GIB, **asked), _fit(LLAMA8B, 24 * GIB, **asked, draft=draft)
    per_token, beside = (memory.kv_bytes_per_token(shape, "bfloat16") for shape in (LLAMA8B, SMOLLM2))
    assert both.weights - alone.weights > 2 * SMOLLM2.parameters  # and its activations
    assert both.kv_cache == (both.kv_tokens + 16) * (per_token + beside)
    assert alone.kv_tokens > both.kv_tokens
    assert both.total <= 24 * GIB * memory.GPU_SHARE
    given = {**asked, "kv_cache_bytes": 4 * GIB}
    alone, both = _fit(LLAMA8B, 80 * GIB, **given), _fit(LLAMA8B, 80 * GIB, **given, draft=draft)
    assert alone.kv_tokens == both.kv_tokens
    assert both.kv_cache - alone.kv_cache == (both.kv_tokens + 16) * beside
    head = _fit(LLAMA8B, 24 * GIB, **asked, draft=Draft([ModelFile("head", "0", 850_000_000)], "safetensors"))
    assert head.weights == 2 * LLAMA8B.parameters + 850_000_000
    features, layer = LLAMA8B.hidden, 2 * LLAMA8B.kv_heads * LLAMA8B.head_dim
    assert head.kv_cache == (head.kv_tokens + 16) * (per_token + 2 * (features + layer))


@pytest.mark.speculation
def test_logits_behind_guesses_have_room_beside_the_cache():
    off = {"options": {"speculation": "off"}}
    plain, guessing = (_fit(LLAMA8B, 24 * GIB, device="cuda", **given) for given in (off, {}))
    assert plain.verification == 0
    assert guessing.verification == (512 * 12 - 256 * 8) * 128_256  # logits twice, a copy and scores of 32 bits
    assert guessing.total <= 24 * GIB * memory.GPU_SHARE
    taken = plain.kv_cache - guessing.kv_cache
    assert taken == pytest.approx(guessing.verification, abs=16 * memory.kv_bytes_per_token(LLAMA8B, "bfloat16"))
    few = _fit(LLAMA8B, 24 * GIB, device="cuda", max_num_seqs=4)
    assert few.verification == (4 * 32 * 12 - 4 * 8) * 128_256
    cpu = _fit(SMOLLM2, 8 * GIB, device="cpu")
    assert cpu.verification == (64 - 16) * 49_152 * 12
    assert cpu.total - _fit(SMOLLM2, 8 * GIB, device="cpu", **off).total == cpu.verification
    exact = _fit(LLAMA8B, guessing.total, device="cuda", kv_cache_bytes=guessing.kv_cache)
    assert exact.fits
    short = _fit(LLAMA8B, guessing.total - 1, device="cuda", kv_cache_bytes=guessing.kv_cache)
    assert not short.fits, "it counts"


@pytest.mark.speculation
@pytest.mark.parametrize(("device", "tokens"), [("cpu", PASS_TOKENS), ("cuda", GRAPH_TOKENS)])
def test_no_pass_with_guesses_draws_more_often_than_is_planned(device, tokens):
    for rows in range(1, 700):
        nodes = min(MAX_NODES, max(1, tokens // rows - 1))
        drawn = rows * (nodes + 1)
        if device == "cuda":  # the widest graph that those nodes fill
            drawn = rows_bucket(rows) * (max(width for width in WIDTHS if width <= nodes) + 1)
        assert drawn <= memory.verify_lines(rows, device), rows


SHORT = {"max_model_len": 4096, "max_num_seqs": 2}


@pytest.mark.parametrize(
    ("shape", "device", "dtype", "gib", "given"),
    [
        (SMOLLM2, "cpu", "float32", 1.2, {}),
        (SMOLLM2, "cpu", "float32", 1.1, {}),
        (LLAMA8B, "cuda", "float32", 24, {}),
        (LLAMA8B, "cuda", "bfloat16", 12, {}),
        (LLAMA8B, "cpu", "bfloat16", 8.5, SHORT),
        (LLAMA70B, "cpu", "int8", 40, SHORT),
    ],
)
def test_a_suggestion_that_is_followed_fits(shape, device, dtype, gib, given):
    available = int(gib * GIB)
    fit = _fit(shape, available, device=device, dtype=dtype, **given)
    assert not fit.fits
    assert "MiB" in fit.reason or "GiB" in fit.reason
    changes = [dict(_changes(text)) for text in fit.suggestions]
    assert any(changes), fit.suggestions
    for change in changes:
        options = {name: change.pop(name) for name in ("offload_layers", "offload_to") if name in change}
        if change or options:
            spec = {"device": device, "dtype": dtype, **given, **change}
            assert _fit(shape, available, options=options, **spec).fits, (change, options)


def _changes(text: str) -> list[tuple[str, int | str]]:
    """'Set max_model_len to 512 and offload_to to disk' → [('max_model_len', 512), ('offload_to', 'disk')]."""
    words = text.replace(":", " ").replace(".", " ").replace(",", " ").split()
    fields = ("dtype", "max_model_len", "kv_cache_bytes", "offload_layers", "offload_to")
    pairs = [(word, words[i + 2]) for i, word in enumerate(words[:-2]) if word in fields and words[i + 1] == "to"]
    return [(field, int(value) if value.isdigit() else value) for field, value in pairs]


def test_refusals_name_the_field():
    fit = _fit(SMOLLM2, 8 * GIB, device="cpu", max_model_len=9000)
    assert (fit.fits, "max_model_len is 9000" in fit.reason, "8192" in fit.reason) == (False, True, True)
    fit = _fit(SMOLLM2, 8 * GIB, device="cuda", dtype="int8")
    assert (fit.fits, "int8" in fit.reason) == (False, True)


MIXTRAL = ModelShape("mixtral", 32, 4096, 2 * 14336, 32, 8, 128, 32_000, 32_768, 46_702_792_704)
DEEPSEEK_LITE = ModelShape(
    "deepseek_v2", 27, 2048, 11264, 16, 1, 576, 102_400, 163_840, 15_706_484_224, kv_values=27 * 576
)  # fmt: skip


def test_a_mixture_holds_all_its_experts_in_floating_point():
    fit = _fit(MIXTRAL, 400 * GIB, device="cpu", dtype="auto", max_model_len=4096)
    assert fit.weights == 4 * MIXTRAL.parameters
    assert _fit(MIXTRAL, 160 * GIB, device="cuda").weights == 2 * MIXTRAL.parameters
    refused = _fit(MIXTRAL, 400 * GIB, device="cpu", dtype="int8")
    assert (refused.fits, "mixtral" in refused.reason) == (False, True), refused.reason


def test_a_latent_cache_holds_one_vector_of_a_token():
    assert memory.kv_bytes_per_token(DEEPSEEK_LITE, "bfloat16") == 27 * 576 * 2


def test_a_sliding_window_saves_no_memory():
    window = ModelShape(*[getattr(LLAMA8B, name) for name in LLAMA8B.__struct_fields__[:10]], sliding_window=4096)
    assert _fit(window, 80 * GIB, device="cuda") == _fit(LLAMA8B, 80 * GIB, device="cuda")


_MEASURE = """
import sys
from engines.native.config import EngineConfig
from engines.native.offline import Offline
from engines.native.request import SamplingParams
path, dtype, table = sys.argv[1:]
engine = Offline(EngineConfig(format="gguf", paths={"m.gguf": path}, device="cpu", dtype=dtype, max_model_len=512,
                              max_num_seqs=2, kv_cache_bytes=60_000_000, embedding_dtype=table))
engine.generate([list(range(100, 600))] * 2, SamplingParams(temperature=1, max_tokens=4))
for k, v in engine.runner.model.kv:  # a cache in use has every page touched
    k.fill_(1), v.fill_(1)
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")) * 1024
print(used, engine.runner.sizes.plan.total)
"""


def _measured(dtype: str, table: str) -> tuple[int, int]:
    command = [sys.executable, "-W", "ignore", "-c", _MEASURE, str(smollm2()), dtype, table]
    used, estimated = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    return used, estimated


MEASURED = {"int8-auto": ("int8", "auto"), "float32-auto": ("float32", "auto"), "float32-int8": ("float32", "int8")}


@pytest.fixture(scope="module")
def wait(request: pytest.FixtureRequest) -> Iterator[Callable[[str], tuple[int, int]]]:
    jobs = {f"test_estimate_is_within_15_percent_of_real_use[{n}]": partial(_measured, *m) for n, m in MEASURED.items()}
    with side_by_side(request, jobs) as wait:
        yield wait


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("measured", MEASURED)
def test_estimate_is_within_15_percent_of_real_use(measured, wait, request):
    used, estimated = wait(request.node.name)
    assert estimated == pytest.approx(used, rel=0.15)
