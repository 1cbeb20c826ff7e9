"""What the whole engine draws with its kernels, beside plain torch: greedy tokens must be equal in float32.

The engine under test gets a ragged batch at once, prompts cut into chunks beside decodes, more requests than rows, and
two prompts that begin alike (prefix cache on). The reference gets one prompt at a time, whole.
"""

from __future__ import annotations

import random

import torch

from engines.native.config import EngineConfig
from engines.native.models.config import DecoderConfig, Rope
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from evaluation.benchmarks.random_model import TINY, random_runner
from evaluation.benchmarks.report import Row

METRIC = "requests with other tokens"
CHUNK = 48  # tokens of a step
SMOL = DecoderConfig(
    architecture="llama", layers=30, hidden=576, ffn=1536, heads=9, kv_heads=3, head_dim=64, vocab=49_152,
    context_length=1024, norm_eps=1e-5, rope=Rope(), tied=False, qkv_bias=False, o_bias=False, mlp_bias=False,
    qk_norm=False, windows=(0,) * 30,
)  # fmt: skip
"""SmolLM2-135M, but not tied: with random weights a tied head draws the last token again and again."""


def run(device: torch.device, outputs: int = 32) -> Row:
    """On a CPU: a tiny shape, plain torch on both sides, so that batching and chunks alone are compared."""
    gpu = device.type == "cuda"
    shape, longest = (SMOL, 400) if gpu else (TINY, 30)
    prompts = _ragged(shape, longest)
    drawn = _engine(shape, device, "triton" if gpu else "torch", 6, CHUNK, longest + outputs)
    wanted = _engine(shape, device, "torch", 1, 2 * longest, longest + outputs, prefix_cache=False)
    params = SamplingParams(temperature=0, max_tokens=outputs)
    ours = [result.token_ids for result in drawn.generate(prompts, params)]
    theirs = [wanted.generate([prompt], params)[0].token_ids for prompt in prompts]
    kinds = len({token for tokens in theirs for token in tokens})
    if kinds < len(prompts):
        raise RuntimeError(f"the reference draws only {kinds} different tokens: equality would show nothing")
    wrong = sum(a != b or len(a) != outputs for a, b in zip(ours, theirs, strict=True))
    case = (
        f"engine {shape.heads}/{shape.kv_heads} heads float32, {len(prompts)} ragged prompts, steps of {CHUNK} tokens"
    )
    return Row(case, METRIC, wrong, "requests", "lower", peer="torch operations", target=0)


def _ragged(shape: DecoderConfig, longest: int) -> list[list[int]]:
    chooser = random.Random(7)
    lengths = (longest, 1, 17, longest // 2, 2, 16, longest // 3, 5, longest - 1, 23)
    prompts = [[chooser.randrange(shape.vocab) for _ in range(length)] for length in lengths]
    return [*prompts, [*prompts[0][: longest * 2 // 3], 3, 1, 2]]


def _engine(
    shape: DecoderConfig,
    device: torch.device,
    ops: str,
    rows: int,
    batched: int,
    length: int,
    prefix_cache: bool = True,
) -> Offline:
    tokens = rows * (length + 32)  # one block more for each, and the null block
    config = EngineConfig(
        speculation="off",
        format="safetensors", paths={}, device=device.type, dtype="float32", max_model_len=length, max_num_seqs=rows,
        max_batched_tokens=batched, kv_cache_bytes=2 * shape.layers * shape.kv_size * 4 * tokens, ops=ops,
        prefix_cache=prefix_cache,
    )  # fmt: skip
    return Offline(config, random_runner(shape, config, seed=3))
