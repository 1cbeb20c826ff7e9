"""Cases D2, H2 and K2 of cases/engine.md (docs/cases.md): what is held is known before it is asked for, the batch
changes nothing, and weights that can't be read are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from engines.api import Phase
from engines.native import sizes
from engines.native.config import ConfigError, EngineConfig
from engines.native.load_failure import load_failure
from engines.native.loader.errors import BadModel
from engines.native.loader.safetensors import read_safetensors
from engines.native.memory import MemoryPlan
from engines.native.offline import Generated, Offline
from engines.native.quant.config import quant_config
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, build_runner
from engines.native.scheduler import Scheduler, SchedulerConfig
from evaluation.benchmarks.random_model import TINY
from tests.engines.instances import Running
from tests.engines.serve.conftest import SCRIPTED
from tests.engines.weights import smollm2
from tests.tiny_models import VOCAB, write_safetensors

GIB = 2**30
LLAMA8B = replace(
    TINY, architecture="llama", layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128, vocab=128_256,
    context_length=131_072, tied=False, qkv_bias=False, qk_norm=False, windows=(),
)  # fmt: skip


def config(**changes: Any) -> EngineConfig:
    fields: dict[str, Any] = {"format": "safetensors", "paths": {}, "device": "cpu", "dtype": "float32"}
    return EngineConfig(**(fields | changes))


@pytest.mark.parametrize("free", [10, 17, 24, 40, 80, 139])
@pytest.mark.parametrize("asked", [0, 4 * GIB, 60 * GIB])
def test_d2_a_gpu_is_never_promised_more_than_it_has(monkeypatch: pytest.MonkeyPatch, free: int, asked: int) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free * GIB, 141 * GIB))
    wanted = config(device="cuda", dtype="bfloat16", kv_cache_bytes=asked, max_model_len=32_768)
    plan, refused = planned(wanted)
    if plan is None:
        assert "kv_cache_bytes" in refused
        assert free < 24 or asked > (free - 18) * GIB, "there is room for it"
    else:
        assert plan.total <= free * GIB
        assert plan.num_blocks > 2


def planned(wanted: EngineConfig) -> tuple[MemoryPlan | None, str]:
    """The plan, or why there is none."""
    try:
        return sizes.sizes_of(LLAMA8B, wanted, torch.device("cuda")).plan, ""
    except ConfigError as error:
        return None, str(error)


def test_d2_a_cpu_refuses_what_exceeds_its_memory_before_it_reads_a_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "_physical_memory", lambda: 2**30)
    with pytest.raises(ConfigError, match=r"need [\d,]+ bytes, and the cpu has 1,073,741,824: lower kv_cache_bytes"):
        sizes.sizes_of(TINY, config(kv_cache_bytes=2 * GIB), torch.device("cpu"))
    assert sizes.sizes_of(TINY, config(kv_cache_bytes=2**29), torch.device("cpu")).num_blocks > 2


@pytest.mark.parametrize(
    ("error", "code", "part"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "out_of_memory", "kv_cache_bytes"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "out_of_memory", "free"),
        (MemoryError(), "out_of_memory", "not enough memory"),
        (BadModel("truncated", "m.gguf ends early"), "truncated", "ends early"),
        (ConfigError("dtype is 'x'"), "cannot_load", "dtype is 'x'"),
        (KeyError("num_hidden_layers"), "cannot_load", "KeyError: 'num_hidden_layers'"),
    ],
)
def test_d2_whatever_loading_raises_is_one_sentence(error: Exception, code: str, part: str) -> None:
    said = load_failure(error)
    assert said.code == code
    assert part in said.message


@pytest.mark.slow
def test_d2_memory_that_runs_out_while_loading_is_told_and_not_tried_again() -> None:
    script = {"load_error": "CUDA out of memory. Tried to allocate 2.00 GiB", "load_raises": "RuntimeError"}
    running = Running(smollm2(), module=SCRIPTED, script=script, wait=False)
    try:
        assert running.process.wait(30) == 1
        state = running.state
        assert state is not None
        assert (state.phase, state.error_code) == (Phase.FAILED, "out_of_memory")
        assert "lower kv_cache_bytes" in state.reason
        assert running.run_dir.log_path.read_text().count("Traceback") == 1, "one attempt"
    finally:
        running.stop()


# H2


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> tuple[EngineConfig, ModelRunner]:
    folder = write_safetensors(tmp_path_factory.mktemp("strict") / "m")
    wanted = config(
        paths={path.name: str(path) for path in folder.iterdir()}, max_num_seqs=48, max_batched_tokens=256,
        kv_cache_bytes=2**22, strict=True, threads=1,
    )  # fmt: skip
    return wanted, build_runner(wanted)


def bits(found: list[Generated]) -> list[tuple[list[int], list[float]]]:
    return [(one.token_ids, one.logprobs) for one in found]


def test_h2_the_same_bits_alone_and_among_44(strict: tuple[EngineConfig, ModelRunner]) -> None:
    wanted, runner = strict
    random = np.random.default_rng(3)
    prompts = [random.integers(0, 256, 1 + 7 * number % 60).tolist() for number in range(44)]
    params = [SamplingParams(temperature=n % 2 * 0.8, seed=n, max_tokens=6, logprobs=0) for n in range(44)]
    alone = [one for each, how in zip(prompts, params, strict=True) for one in answer(wanted, runner, [each], [how])]
    together = answer(wanted, runner, prompts, params)
    assert bits(together) == bits(alone)
    assert len({tuple(one.token_ids) for one in alone}) > 20, "different answers, or equality says nothing"


def answer(
    wanted: EngineConfig, runner: ModelRunner, prompts: list[list[int]], params: list[SamplingParams]
) -> list[Generated]:
    return Offline(wanted, runner).generate(prompts, params)


def test_d4_a_real_model_answers_the_same_in_one_chunk_and_in_many(strict: tuple[EngineConfig, ModelRunner]) -> None:
    wanted, runner = strict
    prompts = [[(7 * each + place) % VOCAB for place in range(100 - each)] for each in range(4)]
    params = [SamplingParams(temperature=0, max_tokens=8, logprobs=0, prompt_logprobs=0)] * 4
    whole = answer(wanted, runner, prompts, params)
    engine = Offline(wanted, runner)
    engine.scheduler = Scheduler(
        SchedulerConfig(max_num_seqs=4, max_batched_tokens=20),
        num_blocks=runner.num_blocks, block_size=runner.block_size, max_model_len=runner.max_model_len,
    )  # fmt: skip
    cut = engine.generate(prompts, params)
    assert bits(cut) == bits(whole)
    assert [one.prompt_logprobs for one in cut] == [one.prompt_logprobs for one in whole]


# K2


@pytest.mark.parametrize(
    ("about", "part", "hint"),
    [
        ({"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [128, 128]}, r"fmt is 'e5m2'", "e4m3"),
        ({"quant_method": "awq", "bits": 3}, r"bits is 3", "4"),
        ({"quant_method": "gptq", "bits": 2}, r"bits is 2", "4 or 8"),
        ({}, "", ""),
        (None, "", ""),
        ("fp8", "'fp8'", ""),
        ({"load_in_8bit": True}, "quant_method is None", "compressed-tensors, gptq, awq, fp8"),
    ],
)
def test_k2_quantized_weights_that_cannot_be_read_are_named(about: Any, part: str, hint: str) -> None:
    if not part:  # says that nothing is quantized
        assert quant_config({"quantization_config": about}) is None
        return
    with pytest.raises(BadModel, match=part) as refused:
        quant_config({"quantization_config": about})
    assert refused.value.code == "unknown_type"
    assert hint in refused.value.hint


def test_k2_an_fp8_tensor_without_a_word_in_the_config_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"model.layers.0.mlp.up_proj.weight": torch.zeros(192, 192).to(torch.float8_e4m3fn)}, path)
    with pytest.raises(BadModel, match=r"model\.layers\.0\.mlp\.up_proj\.weight has dtype F8_E4M3") as refused:
        read_safetensors(path)
    assert "BF16" in refused.value.hint
