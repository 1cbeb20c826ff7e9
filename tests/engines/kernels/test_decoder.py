"""The whole decoder on the real runner, through TritonOps in the interpreter and through TorchOps."""

import pytest
import torch

from engines.native.config import EngineConfig
from engines.native.ops.registry import make_ops
from engines.native.ops.triton_ops import TritonOps
from evaluation.benchmarks.random_model import TINY, greedy, random_runner

pytestmark = pytest.mark.kernels


def runner(ops: str):
    config = EngineConfig(
        format="safetensors", paths={}, device="cpu", dtype="float32", max_model_len=24, max_num_seqs=2,
        kv_cache_bytes=1 << 17, block_size=8, threads=1, ops=ops,
    )  # fmt: skip
    return random_runner(TINY, config, seed=5)


def generate(ops: str, prompts: list[list[int]], steps: int):
    """(tokens per prompt, log-probabilities per prompt, every logits tensor that the model made)."""
    made = runner(ops)
    compute, seen = made.model.logits, []

    def logits(hidden: torch.Tensor) -> torch.Tensor:
        seen.append(compute(hidden))
        return seen[-1].clone()  # the sampler writes over it

    made.model.logits = logits
    return *greedy(made, prompts, steps), torch.cat(seen)


@pytest.mark.parametrize("products", ["library", "ours"])
def test_chunks_mixed_steps_and_decodes_equal_the_torch_path(products, monkeypatch):
    """A prompt in two chunks beside a whole one, then decodes; one layer with a sliding window shorter than both. Ours:
    as on a Hopper GPU, where products of few rows leave summands to RoPE and the norms."""
    if products == "ours":
        monkeypatch.setattr(TritonOps, "_few", lambda *_, **__: True)
        monkeypatch.setattr("engines.native.kernels.linear.LEAST_INPUTS", 16)  # or so small a model is never split
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(0, TINY.vocab, (n,), generator=generator).tolist() for n in (13, 11)]
    tokens, logprobs, logits = generate("triton", prompts, 3)
    wanted, wanted_logprobs, wanted_logits = generate("torch", prompts, 3)
    assert tokens == wanted
    torch.testing.assert_close(logits, wanted_logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.tensor(logprobs), torch.tensor(wanted_logprobs), rtol=1e-4, atol=1e-4)


def test_ops_are_made_by_name():
    assert type(make_ops("triton")).__name__ == "TritonOps"
    with pytest.raises(KeyError, match="no operations named 'cudnn'; known: torch, strict, triton"):
        make_ops("cudnn")
