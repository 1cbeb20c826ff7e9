"""Programmatic dependent launch (sm_90): a kernel may start while the one before it in the stream still runs.

A kernel launched so calls `begin` first, may then ask for what no kernel of a stream writes (weights), and calls `wait`
before it touches anything else: then all that was launched before has ended and can be seen. It holds through a chain,
since the kernel before has waited too; so every program of a kernel waits, also one that finds no work.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def begin(DEPENDENT: tl.constexpr):
    """Let the kernel behind this one start as soon as every program of this one has come here."""
    if DEPENDENT:
        gdc_launch_dependents()


@triton.jit
def wait(DEPENDENT: tl.constexpr):
    if DEPENDENT:
        gdc_wait()


@triton.jit
def ask_for(first, AHEAD: tl.constexpr):
    """Bring AHEAD values of 2 bytes from each of the pointers `first` on into the L2 cache."""
    for at in tl.static_range(0, AHEAD, 64):
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [first + at], dtype=tl.int32, is_pure=False, pack=1
        )


@cache
def dependent(device: torch.device) -> bool:
    """Whether kernels on `device` are launched so: Hopper and later."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
