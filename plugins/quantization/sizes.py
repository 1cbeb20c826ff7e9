"""Bytes of weights in a checkpoint, before and after they are made."""

from __future__ import annotations

from engines.native.quant.weight import QuantizedWeight


def bytes_of(weight: QuantizedWeight) -> int:
    """As compressed-tensors stores it: values and scales as they are; zeros of 4 bits are packed like the values."""
    total = weight.values.numel() * weight.values.element_size() + weight.scales.numel() * weight.scales.element_size()
    if weight.zeros is not None:
        total += -(-weight.zeros.numel() * weight.scheme.bits // 8)
    if weight.groups_of is not None:
        total += 4 * weight.groups_of.numel()
    return total
