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


def training_memory(train: str, recompute: bool, parameters: int, logits: int) -> int:
    """Bytes that the back end qat computes in, about. parameters: of the model, logits: values of a step's. The model
    and the trained one in float32; of what is trained its gradients and AdamW's two means; the rounded weights, once
    between the steps of their rounding, and the distributions of both models."""
    models = 8 * parameters + (12 * parameters if train == "full" else 0)
    return models + (0 if recompute else 12 * parameters) + 24 * logits


def training_files(train: str, parameters: int, width: int) -> int:
    """Bytes on disk until it is done: the model as transformers reads it, codes before and after, two checkpoints."""
    return parameters * (width + 2 + (24 if train == "full" else 0))
