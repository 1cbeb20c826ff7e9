"""Why a model can't be served, for whoever reads its state: said once, whatever went wrong while it was loaded. A core
that died of it instead would be started again and again, and load the weights each time."""

from __future__ import annotations

from engines.native.ipc import LoadFailed
from engines.native.loader.errors import BadModel

_NO_MEMORY = ("can't allocate memory", "out of memory", "not enough memory")
_MOST = 500  # characters of another library's message


def load_failure(error: Exception) -> LoadFailed:
    """`error`: what loading raised. A shortage of memory names the settings that lessen it."""
    text = str(error)
    if isinstance(error, BadModel):
        return LoadFailed(error.code, text)
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in text.lower() for words in _NO_MEMORY)
    ):
        advice = "lower kv_cache_bytes, max_model_len or max_num_seqs, choose a smaller dtype, or free memory"
        return LoadFailed(
            "out_of_memory", f"there is not enough memory: {advice} ({text[:_MOST] or 'no more is known'})"
        )
    if isinstance(error, ValueError):
        return LoadFailed("cannot_load", text or type(error).__name__)
    return LoadFailed("cannot_load", f"{type(error).__name__}: {text[:_MOST]}")
