"""Triton's interpreter replaces parts of `triton.language` while a kernel runs, and searches it anew at every call of a
kernel or of a function in one, `tl.sum` too: a third of an interpreted test's time. Here they are replaced once, for
good, as nothing else of this process uses them. With a GPU kernels are compiled (tests/conftest.py)."""

from __future__ import annotations

from types import SimpleNamespace

import torch

if not torch.cuda.is_available():
    import triton.language as tl
    from triton.runtime import interpreter

    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda _: interpreter._LangPatchScope()  # which has nothing to take back
