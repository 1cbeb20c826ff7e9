"""Strict mode's kernels and operations of a GPU, interpreted: the same bits whatever is beside a row."""

from __future__ import annotations

import pytest
import torch
from triton.runtime import interpreter

from engines.native import strict
from engines.native.config import EngineConfig
from engines.native.kernels.linear import fixed_linear, linear
from engines.native.layers.fixed_gpu import FixedLinear
from engines.native.layers.linear import DenseLinear, method_for
from engines.native.offline import Offline
from engines.native.ops.strict_triton import StrictQuantizedKvTritonOps, StrictTritonOps
from engines.native.ops.torch_ops import TorchOps
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner
from evaluation.benchmarks import random_model
from evaluation.benchmarks.strict_gpu import bits, preempt
from tests.engines.test_strict import in_any_chunks, one_by_one

pytestmark = pytest.mark.kernels


@pytest.fixture(autouse=True)
def products_in_one_order(monkeypatch):
    """A tensor core adds an element's products in one order wherever it lies in a tile, the interpreter's BLAS does
    not: here they are added one input after the other."""

    def dot(builder, a, b, d, input_precision, most):
        total = d.data.copy()
        for k in range(a.data.shape[1]):
            total += a.data[:, k : k + 1] * b.data[k : k + 1]
        return interpreter.TensorHandle(total, d.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)


def test_a_product_has_the_same_bits_alone_and_in_any_company():
    torch.manual_seed(0)
    x, weight, bias = torch.randn(70, 48), torch.randn(40, 48), torch.randn(40)
    whole = fixed_linear(x, weight, bias)
    torch.testing.assert_close(whole, x @ weight.T + bias)
    for at in (slice(69, 70), slice(3, 20)):
        assert torch.equal(fixed_linear(x[at], weight, bias), whole[at])
    assert fixed_linear(x[:0], weight, None).shape == (0, 40)


def test_the_ordinary_product_cuts_its_sums_by_the_number_of_rows(monkeypatch):
    """What strict mode is for: with more rows a wider tile takes fewer inputs at a time, or a narrower one splits."""
    monkeypatch.setattr("engines.native.kernels.linear.LEAST_INPUTS", 16)
    x, weight = torch.randn(2, 512), torch.randn(64, 512)
    split = linear(x, weight, None, splits=True)
    assert split.dim() == 3
    assert not torch.equal(split.sum(0), fixed_linear(x, weight, None))


@pytest.mark.parametrize("window", [0, 20])
def test_attention_has_the_same_bits_in_every_chunk_and_company(window):
    in_any_chunks(StrictTritonOps(), window, [7, 1, 32])


def test_experts_are_those_of_the_other_operations_and_have_the_same_bits_alone():
    torch.manual_seed(2)
    x, gate_up, down = torch.randn(5, 16), torch.randn(4, 24, 16), torch.randn(4, 16, 12)
    shares, chosen = torch.rand(5, 2), torch.tensor([[0, 2], [3, 1], [2, 0], [1, 2], [0, 3]])
    ops = StrictTritonOps()
    whole = ops.experts(x, shares, chosen, gate_up, down)
    torch.testing.assert_close(whole, TorchOps().experts(x, shares, chosen, gate_up, down))
    alone = [ops.experts(x[at], shares[at], chosen[at], gate_up, down) for at in torch.arange(5).split(1)]
    assert torch.equal(torch.cat(alone), whole)


@pytest.fixture
def runner(monkeypatch) -> ModelRunner:
    """A tiny random model on the operations that a strict engine has on a GPU."""
    monkeypatch.setattr(random_model, "method_for", lambda *_, **__: FixedLinear)
    return random_model.random_runner(random_model.TINY, settings(), seed=5)


def settings(**changes) -> EngineConfig:
    fields = {
        "format": "safetensors", "paths": {}, "device": "cpu", "dtype": "float32", "max_model_len": 32,
        "max_num_seqs": 4, "max_batched_tokens": 16, "kv_cache_bytes": 1 << 17, "block_size": 8, "threads": 1,
        "ops": "strict triton", "strict": True,
    }  # fmt: skip
    return EngineConfig(**(fields | changes))


@pytest.mark.slow
def test_a_model_answers_with_the_same_bits_alone_and_beside_a_preempted_row(runner):
    check(runner, 2, most=2)


@pytest.mark.nightly
def test_a_model_answers_with_the_same_bits_cached_and_speculated_on(runner):
    strict.verify(runner)
    alone = check(runner, 4, most=4)
    assert answers(runner, 4, 4, settings(speculation="ngram")) == alone


def check(runner: ModelRunner, number: int, most: int) -> list:
    plain = settings(prefix_cache=False, speculation="off")
    asked, drawn = prompts(number), params(most)[:number]
    alone = bits(one_by_one(Offline(plain, runner), asked, drawn))
    assert answers(runner, number, most, plain) == alone
    engine = Offline(plain, runner)
    preempt(engine)
    assert bits(engine.generate(asked, drawn)) == alone
    assert engine.scheduler.preemptions
    return alone


def answers(runner: ModelRunner, number: int, most: int, config: EngineConfig) -> list:
    return bits(Offline(config, runner).generate(prompts(number), params(most)[:number]))


def prompts(number: int) -> list[list[int]]:
    """The last of four begins like the first."""
    chooser = torch.Generator().manual_seed(1)
    made = [torch.randint(0, 96, (length,), generator=chooser).tolist() for length in (13, 5, 9)]
    return [*made, made[0][:8] + made[1]][:number]


def params(most: int) -> list[SamplingParams]:
    """Penalised, filtered, biased and greedy."""
    return [
        SamplingParams(temperature=0, max_tokens=most, logprobs=0, frequency_penalty=0.5),
        SamplingParams(temperature=0.9, top_k=20, top_p=0.9, seed=3, max_tokens=most, logprobs=0),
        SamplingParams(temperature=1.1, seed=4, max_tokens=most, logprobs=2, logit_bias={7: 2.0}),
        SamplingParams(temperature=0, max_tokens=most, logprobs=0),
    ]


def test_what_a_strict_engine_on_a_gpu_is_made_of():
    assert method_for("bfloat16", "cuda", strict=True) is FixedLinear
    assert method_for("bfloat16", "cuda") is DenseLinear
    assert not StrictTritonOps.trees
    assert StrictQuantizedKvTritonOps()._pairs(1, 4096, 4096), "a chunk reads what a decode reads"
