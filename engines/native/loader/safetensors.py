"""Reader of safetensors headers, every extent checked against the file. Format: 8 bytes of header length, a JSON
header, then the data; offsets count from the end of the header."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines.native.loader.errors import BadModel
from engines.native.loader.tensors import TensorInfo

WIDTHS = {"F32": 4, "F16": 2, "BF16": 2}
"""Bytes of an element, of the types that the decoder's weights may have."""
QUANTIZED_WIDTHS = WIDTHS | {"F8_E4M3": 1, "I8": 1, "I32": 4, "I64": 8}
"""With those that quantized weights are made up of."""
_MAX_HEADER = 100 * 1024 * 1024
_AGAIN = "fetch the file again and compare its sha256 with the published one"


def read_safetensors(path: Path, unread: str = "", widths: Mapping[str, int] = WIDTHS) -> dict[str, TensorInfo]:
    """unread: end of the names of tensors that are left out, whatever their type. widths: types that may be there.

    Raises BadModel: bad_magic, truncated, unknown_type, wrong_shape; the message names the tensor.
    """
    size = path.stat().st_size
    header, start = read_header(path, size)
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or (unread and name.endswith(unread)):
            continue
        tensors[name] = _located(path, size, start, name, entry, widths)
    return tensors


def read_header(path: Path, size: int) -> tuple[dict[str, Any], int]:
    """The header as it stands in the file of `size` bytes, and where the data begins. Raises BadModel."""
    with path.open("rb") as file:
        prefix = file.read(8)
        if len(prefix) < 8:
            raise BadModel("truncated", f"{path.name} has {size} bytes, fewer than its header's length takes", _AGAIN)
        (length,) = struct.unpack("<Q", prefix)
        if length > _MAX_HEADER:
            raise BadModel(
                "bad_magic", f"{path.name} is not a safetensors file: its header would have {length:,} bytes"
            )
        if 8 + length > size:
            raise BadModel("truncated", f"{path.name} ends inside its header of {length:,} bytes", _AGAIN)
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise BadModel(
                "bad_magic", f"{path.name} is not a safetensors file: its header is no JSON ({error})"
            ) from error
    if not isinstance(header, dict):
        raise BadModel("bad_magic", f"{path.name} is not a safetensors file: its header is no JSON object")
    return header, 8 + length


def _located(path: Path, size: int, start: int, name: str, entry: Any, widths: Mapping[str, int]) -> TensorInfo:
    try:
        kind, shape = str(entry["dtype"]), tuple(int(length) for length in entry["shape"])
        begin, end = (int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadModel("bad_magic", f"tensor {name} of {path.name} has no readable header entry ({error})") from error
    if kind not in widths:
        raise BadModel(
            "unknown_type", f"tensor {name} has dtype {kind}, which cannot be read", f"it can be {', '.join(widths)}"
        )
    elements = 1
    for length in shape:
        elements *= length
    if end - begin != elements * widths[kind] or begin < 0:
        raise BadModel(
            "wrong_shape", f"tensor {name} of shape {list(shape)} and dtype {kind} has {end - begin:,} bytes"
        )
    if start + end > size:
        raise BadModel(
            "truncated",
            f"tensor {name} ends at byte {start + end:,} of {path.name}, but the file has {size:,}",
            _AGAIN,
        )
    return TensorInfo(name, shape, kind, path, start + begin, end - begin)
