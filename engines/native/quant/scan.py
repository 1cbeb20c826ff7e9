"""Whether what a checkpoint holds can be what a quantizer wrote: read once, when it is registered. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.native.loader.errors import BadModel
from engines.native.loader.tensors import Mapped, TensorInfo
from engines.native.quant.stored import FLOATS, Stored

_AGAIN = "fetch the file again and compare its sha256 with the published one"
_STEP = 2**24  # bytes that are looked at in one go


def scan(tensors: Mapping[str, TensorInfo], quantized: Mapping[str, Stored], extra: list[TensorInfo]) -> None:
    """Of safetensors. tensors, quantized: as in ModelFiles; extra: scales of the cache.

    Raises BadModel, naming the tensor: a float or scale that is NaN or infinite, a float of 8 bits that is NaN, groups
    that there are not, a shape that is another's.
    """
    mapped = Mapped()
    try:
        for name, info in tensors.items():
            if name not in quantized:
                _finite(info, mapped)
        for info in extra:
            _finite(info, mapped)
        for stored in quantized.values():
            for kind, info in stored.parts.items():
                _CHECKS.get(kind, _number)(stored, info, mapped)
    finally:
        mapped.close()


def _bands(info: TensorInfo, mapped: Mapped, kind: str) -> list[NDArray[Any]]:
    data = mapped.bytes_of(info)
    return [np.frombuffer(data[first : first + _STEP], kind) for first in range(0, len(data), _STEP)]


def _finite(info: TensorInfo, mapped: Mapped) -> None:
    """F32, F16, BF16: no bit pattern whose exponent is all ones."""
    kind, exponent = {"F32": ("<u4", 0x7F80_0000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}[info.type]
    found = sum(int(np.count_nonzero((band & exponent) == exponent)) for band in _bands(info, mapped, kind))
    mapped.passed(info)
    if found:
        raise BadModel(
            "bad_values",
            f"tensor {info.name} holds {found:,} values of {info.elements:,} that are NaN or infinite",
            _AGAIN,
        )


def _number(stored: Stored, info: TensorInfo, mapped: Mapped) -> None:
    if info.type in FLOATS:
        _finite(info, mapped)
    elif info.type == "F8_E4M3":  # has no infinity; all other bits set is NaN
        found = sum(int(np.count_nonzero((band & 0x7F) == 0x7F)) for band in _bands(info, mapped, "u1"))
        mapped.passed(info)
        if found:
            raise BadModel("bad_values", f"tensor {info.name} holds {found:,} values that are NaN", _AGAIN)


def _shape(stored: Stored, info: TensorInfo, mapped: Mapped) -> None:
    (said,) = _bands(info, mapped, "<i8" if info.type == "I64" else "<i4")
    if tuple(said.tolist()) != stored.shape:
        raise BadModel(
            "wrong_shape", f"tensor {info.name} says {said.tolist()}; the configuration makes it {list(stored.shape)}"
        )


def _groups(stored: Stored, info: TensorInfo, mapped: Mapped) -> None:
    (order,) = _bands(info, mapped, "<i4")
    scale = stored.parts["weight_scale" if "weight_scale" in stored.parts else "scales"]
    groups = scale.shape[0 if "scales" in stored.parts else -1]
    if bool((order == -1).all()):  # made and not used
        return
    if int(order.min()) < 0 or int(order.max()) >= groups:
        raise BadModel(
            "bad_values",
            f"tensor {info.name} names groups {order.min()} … {order.max()}, and there are {groups}",
            _AGAIN,
        )


_CHECKS: dict[str, Callable[[Stored, TensorInfo, Mapped], None]] = {
    "weight_shape": _shape,
    "weight_g_idx": _groups,
    "g_idx": _groups,
}
