"""The work that `engine_gpu` times, with the figures of vLLM 0.26.0 on one H200 for the same work.

vLLM ran with token ids in, greedy, ignore_eos, no detokenizing, prefix cache off, FlashAttention 3, full and piecewise
CUDA graphs, torch.compile, asynchronous scheduling, 16,384 batched tokens, memory utilization 0.9.
Floor: the matrix products through cuBLAS at that batch, and the bytes of the KV cache at 4.2 TB/s; no norms, no host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PEER = "vLLM 0.26.0"
LENGTH = 8448  # tokens of a request, prompt and output
BATCHED = 16_384
ROWS = 512

Kind = Literal["decode", "prefill", "mixed"]
Figures = tuple[float | None, float | None, float | None]
"""(peer, floor, target)"""


@dataclass(frozen=True, slots=True)
class Case:
    """`batch` prompts of `inputs` tokens at once, `outputs` tokens for each.

    decode: ms per token after the first; prefill: ms to the first tokens of all; mixed: requests/s.
    """

    kind: Kind
    batch: int
    inputs: int
    outputs: int
    figures: Figures = (None, None, None)
    rounds: int = 3

    @property
    def name(self) -> str:
        if self.kind == "decode" and self.inputs >= LENGTH // 2:
            return f"long {self.batch} × {self.inputs}"
        return f"{self.kind} {self.batch} × {self.inputs}"


def _decodes(figures: dict[int, Figures]) -> list[Case]:
    return [Case("decode", batch, 512 if batch == 1 else 128, 256, each) for batch, each in figures.items()]


LLAMA_8B = [
    *_decodes({
        1: (4.98, 4.05, 4.3), 8: (5.11, 4.19, 4.45), 32: (5.53, 4.54, 4.8),
        64: (6.09, 4.92, 5.25), 128: (7.49, 5.73, 6.2), 256: (11.41, 8.30, 9.2),
    }),
    Case("prefill", 1, 8192, 1, (220, 197, 210)),
    Case("prefill", 64, 1024, 1, (1543, 1385, 1475)),
    Case("mixed", 512, 1024, 128, (30.9, 35, 32.5), rounds=1),
    Case("decode", 32, 8192, 256, (13.23, 12.5, 12.8), rounds=2),
]  # fmt: skip
QWEN_06B = [
    *_decodes({
        1: (1.99, 0.30, 0.9), 8: (2.27, 0.30, 1.0), 32: (3.68, 0.30, 1.3),
        64: (4.07, 0.7, 1.6), 128: (4.91, 1.1, 2.1), 256: (7.59, 2.1, 3.4),
    }),
    Case("prefill", 1, 8192, 1, (35, None, 27)),
    Case("prefill", 64, 1024, 1, (191, None, 160)),
    Case("mixed", 512, 1024, 128, (135, None, 230), rounds=1),
]  # fmt: skip
TINY = [
    Case("decode", 1, 8, 8),
    Case("decode", 3, 5, 8),
    Case("prefill", 1, 40, 1),
    Case("mixed", 6, 16, 4, rounds=1),
]
"""Shows on a CPU that everything here works; its times mean nothing."""

CASES = {"llama8b": LLAMA_8B, "qwen06b": QWEN_06B, "tiny": TINY}
BLOCKS = {"llama8b": 55_712}
"""Blocks of 16 tokens in vLLM's KV cache at utilization 0.9."""
