"""What fits: each answer is held against the engine's own estimate and against its plan."""

from __future__ import annotations

import pytest

from engines.api import Combination, DtypeCapacity, LaunchSpec, TellsCapacity, get_engine
from engines.native import memory
from engines.native.capacity import MOST_SEQS
from tests.engines.test_memory import DEEPSEEK_LITE, GIB, LLAMA8B, MIXTRAL, SMOLLM2

CONTEXTS, CONCURRENCIES = [100, 1024, 8192], [1, 8, 64]


def _spec(**fields) -> LaunchSpec:
    return LaunchSpec("id", "name", [], "gguf", **fields)


def _capacity(shape, available, dtype, contexts=CONTEXTS, concurrencies=CONCURRENCIES, **spec) -> DtypeCapacity:
    engine = get_engine("native")
    assert isinstance(engine, TellsCapacity)
    (found,) = engine.capacity(
        shape, _spec(**spec), 0, available, dtypes=[dtype], contexts=contexts, concurrencies=concurrencies
    )
    return found


def _holds(shape, available, dtype, item: Combination, **spec) -> bool:
    """Whether the estimate, asked for just that, has room for all requests at full length."""
    asked = _spec(
        dtype=dtype, max_model_len=item.max_model_len, max_num_seqs=item.max_num_seqs,
        kv_cache_bytes=item.kv_cache_bytes, **spec,
    )  # fmt: skip
    fit = get_engine("native").fit(shape, asked, 0, available)
    whole = item.max_num_seqs * -(-item.max_model_len // 16) * 16
    return fit.fits and fit.kv_tokens >= whole


CASES = [
    pytest.param(SMOLLM2, 2 * GIB, "int8", "cpu", id="cpu-int8"),
    pytest.param(SMOLLM2, 2 * GIB, "float32", "cpu", id="cpu-float32"),
    pytest.param(LLAMA8B, 24 * GIB, "bfloat16", "cuda", id="a-full-gpu"),
    pytest.param(LLAMA8B, 80 * GIB, "bfloat16", "cuda", id="gpu"),
    pytest.param(DEEPSEEK_LITE, 80 * GIB, "bfloat16", "cuda", id="latent"),
]


@pytest.mark.parametrize(("shape", "available", "dtype", "device"), CASES)
def test_each_combination_agrees_with_the_estimate(shape, available, dtype, device):
    found = _capacity(shape, available, dtype, device=device)
    assert found.fits
    assert [(item.max_model_len, item.max_num_seqs) for item in found.combinations] == [
        (length, count) for length in CONTEXTS for count in CONCURRENCIES
    ]
    assert any(item.fits for item in found.combinations)
    for item in found.combinations:
        if item.fits:
            assert _holds(shape, available, dtype, item, device=device), item
            assert item.reason == ""
        else:
            assert item.total > available * (memory.GPU_SHARE if device == "cuda" else 1)
            assert "GiB" in item.reason or "MiB" in item.reason


@pytest.mark.parametrize(("shape", "available", "dtype", "device"), CASES)
def test_the_largest_is_the_largest(shape, available, dtype, device):
    found = _capacity(shape, available, dtype, device=device)
    for item in found.by_context:
        assert item.fits == (item.max_num_seqs > 0)
        if 0 < item.max_num_seqs < MOST_SEQS:
            more = _capacity(shape, available, dtype, [item.max_model_len], [item.max_num_seqs + 1], device=device)
            assert (item.fits, more.combinations[0].fits) == (True, False)
    for item in found.by_concurrency:
        if 0 < item.max_model_len < shape.context_length:
            assert item.max_model_len % 16 == 0
            more = _capacity(shape, available, dtype, [item.max_model_len + 1], [item.max_num_seqs], device=device)
            assert (item.fits, more.combinations[0].fits) == (True, False)
        elif item.max_model_len == 0:
            assert not item.fits
            assert item.reason


def test_a_gpu_decides_on_the_cache_that_was_promised():
    """Left to itself (kv_cache_bytes 0) the engine has room for what is said to fit, and for no request more."""
    (item,) = _capacity(LLAMA8B, 80 * GIB, "bfloat16", [8192], [1], device="cuda").by_context
    spec = _spec(device="cuda", dtype="bfloat16", max_model_len=8192, max_num_seqs=item.max_num_seqs)
    assert get_engine("native").fit(LLAMA8B, spec, 0, 80 * GIB).kv_tokens >= 8192 * item.max_num_seqs
    spec = _spec(device="cuda", dtype="bfloat16", max_model_len=8192, max_num_seqs=item.max_num_seqs + 1)
    assert get_engine("native").fit(LLAMA8B, spec, 0, 80 * GIB).kv_tokens < 8192 * (item.max_num_seqs + 1)


def test_why_not_is_said():
    weights = _capacity(LLAMA8B, 12 * GIB, "bfloat16", device="cuda")
    assert (weights.fits, weights.max_model_len) == (False, 0)
    assert weights.reason == "The weights take 14.96 GiB and 11.04 GiB can be used."
    assert not any(item.fits for item in weights.combinations)
    cache = _capacity(LLAMA8B, 20 * GIB, "bfloat16", [8192], [64], device="cuda").combinations[0]
    assert cache.reason.startswith("The KV cache takes 64")
    long = _capacity(SMOLLM2, 8 * GIB, "int8", [9000], [1], device="cpu")
    assert long.combinations[0].reason == "The model was made for 8,192 tokens."
    assert long.by_context[0].max_num_seqs == 0


@pytest.mark.parametrize(
    ("shape", "dtype", "device", "word"),
    [(LLAMA8B, "int8", "cuda", "'int8'"), (MIXTRAL, "int8", "cpu", "mixtral")],
)
def test_a_dtype_that_cannot_be_had_says_so(shape, dtype, device, word):
    found = _capacity(shape, 900 * GIB, dtype, device=device)
    assert not found.fits
    assert word in found.reason
    assert found.combinations == []


def test_options_count():
    plain = _capacity(SMOLLM2, 2 * GIB, "int8", device="cpu").by_context[2].max_num_seqs
    swap = _capacity(SMOLLM2, 2 * GIB, "int8", device="cpu", options={"swap_space_bytes": GIB})
    assert swap.by_context[2].max_num_seqs < plain


def test_offloading_makes_room():
    found = [
        _capacity(LLAMA8B, 12 * GIB, "bfloat16", [4096], [1], device="cuda", options={"offload_layers": count})
        for count in (0, 16, 32)
    ]
    assert [each.fits for each in found] == [False, True, True]
    assert 0 < found[1].by_context[0].max_num_seqs < found[2].by_context[0].max_num_seqs
    assert found[2].weights < found[1].weights < found[0].weights


def test_a_model_without_a_cache_has_no_such_answer():
    embedder = type(SMOLLM2)(*[getattr(SMOLLM2, name) for name in SMOLLM2.__struct_fields__[:-1]], task="embed")
    with pytest.raises(ValueError, match="keeps no KV cache"):
        _capacity(embedder, GIB, "float32", device="cpu")
