"""Scales and zeros as compressed-tensors makes them of a matrix."""

from __future__ import annotations

import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.utils import calculate_qparams


def qparams(values: torch.Tensor, args: QuantizationArgs) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = values.shape
    if args.strategy == "tensor":
        parts, shape = values.reshape(1, -1), (1,)
    elif args.strategy == "block":
        height, width = args.block_structure
        whole = torch.nn.functional.pad(values, (0, -columns % width, 0, -rows % height))
        parts = whole.unflatten(0, (-1, height)).unflatten(2, (-1, width)).transpose(1, 2).flatten(2)
        shape = parts.shape[:2]
    else:
        parts = values.unflatten(1, (-1, args.group_size or columns))
        shape = (rows, parts.shape[1])
    scales, zeros = calculate_qparams(parts.amin(-1), parts.amax(-1), args)
    return scales.reshape(shape).to(values.dtype), zeros.reshape(shape)
