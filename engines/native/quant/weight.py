"""A matrix kept in 4 or 8 bits, with what turns it back: one form for all checkpoints, cut and joined like a tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from engines.native.loader.errors import BadModel
from engines.native.quant.scheme import ActivationScheme, WeightScheme

_BAND = 2**20
"""Values that are dequantized at once."""


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """weight = scales × (values − zero) + offsets, for each group of values.

    values: int8 [out, in] | float8_e4m3fn [out, in] | uint8 [out, ⌈in/2⌉] for 4 bits: 0 … 15, the lower nibble is the
    earlier input. Symmetric ones of 4 bits hold value + 8.
    scales: [out, groups] ([out, 1] channel; [1, 1] tensor; [⌈out/b0⌉, ⌈in/b1⌉] block), in the dtype of the file.
    zeros: uint8 [out, groups] or None, on the unsigned scale: of 4 bits 0 … 15, of 8 bits 0 … 255 where the value
    −128 is 0. offsets: [out, groups] or None, GGUF's minima (Q4_1, Q4_K), in the dtype of the scales.
    groups_of: int32 [in], the group of each input where they are not in order, or None.
    input_scale: float32 scalar for activations that are quantized by the checkpoint's scale, or None.
    inputs: only where `in` is odd and of 4 bits. name: for messages.
    """

    scheme: WeightScheme
    values: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None = None
    groups_of: torch.Tensor | None = None
    input_scale: torch.Tensor | None = None
    offsets: torch.Tensor | None = None
    activations: ActivationScheme | None = None
    inputs: int | None = None
    name: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in) of the matrix that this stands for."""
        width = self.values.shape[1]
        return self.values.shape[0], self.inputs or (2 * width if self.scheme.bits == 4 else width)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        parts = (self.values, self.scales, self.zeros, self.offsets, self.groups_of)
        return sum(part.numel() * part.element_size() for part in parts if part is not None)

    @property
    def device(self) -> torch.device:
        return self.values.device

    def to(self, device: torch.device | str) -> QuantizedWeight:
        moved: dict[str, Any] = {
            name: part.to(device)
            for name in ("values", "scales", "zeros", "groups_of", "input_scale", "offsets")
            if (part := getattr(self, name)) is not None
        }
        return replace(self, **moved)

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """[out, in], computed in float32 and rounded once, to `dtype` (None: that of the scales)."""
        rows, columns = self.shape
        result = torch.empty(rows, columns, dtype=dtype or self.scales.dtype, device=self.device)
        self.into(result)
        return result

    def into(self, target: torch.Tensor) -> None:
        """Write the dequantized matrix over target [out, in], in its dtype; no whole copy in float32 is made."""
        for first, band in self.bands():
            target[first : first + len(band)].copy_(band)

    def bands(self) -> Iterator[tuple[int, torch.Tensor]]:
        """(first row, float32 [rows, in]), following each other: the matrix without a whole copy of it."""
        rows, columns = self.shape
        block = self.scheme.block[0] if self.scheme.block else 1
        step = max(1, _BAND // columns // block) * block
        spread = None if self.groups_of is None else self.groups_of.long()
        for first in range(0, rows, step):
            yield first, self._band(slice(first, min(first + step, rows)), spread)

    def _band(self, rows: slice, spread: torch.Tensor | None) -> torch.Tensor:
        """Some rows (of whole blocks) in float32."""
        columns = self.shape[1]
        values = unpack_nibbles(self.values[rows], columns) if self.scheme.bits == 4 else self.values[rows]
        band = values.to(torch.float32)

        def per_value(part: torch.Tensor) -> torch.Tensor:
            if part.shape == (1, 1):
                return part.float()
            if self.scheme.block is not None:
                height = self.scheme.block[0]
                part = part[rows.start // height : -(-rows.stop // height)]
                part = part.repeat_interleave(height, dim=0)[: len(band)]
            else:
                part = part[rows]
            if spread is not None:
                return part.float()[:, spread]
            if part.shape[1] == 1:
                return part.float()
            return part.float().repeat_interleave(self._span(), dim=1)[:, :columns]

        if self.zeros is not None:
            band -= per_value(self.zeros) - (128 if self.scheme.bits == 8 else 0)
        elif self.scheme.bits == 4 and self.offsets is None:
            band -= 8
        band *= per_value(self.scales)
        if self.offsets is not None:
            band += per_value(self.offsets)
        return band

    def _span(self) -> int:
        """Inputs that share a scale."""
        if self.scheme.block is not None:
            return self.scheme.block[1]
        return self.scheme.group if self.scheme.strategy == "group" else self.shape[1]

    def rows(self, index: slice | torch.Tensor) -> QuantizedWeight:
        """Some outputs, in the order of the index. Blocks that the index cuts or mixes become groups of single rows."""
        if isinstance(index, slice) and index.step not in (None, 1):
            raise ValueError(f"rows are cut in steps of 1, not {index.step}")
        kept: dict[str, Any] = {"values": self.values[index]}
        if self.scheme.block is not None:
            return self._rows_of_blocks(index, kept["values"])
        for name in ("scales", "zeros", "offsets"):
            part = getattr(self, name)
            if part is not None:
                kept[name] = part if self.scheme.strategy == "tensor" else part[index]
        return replace(self, **kept)

    def _rows_of_blocks(self, index: slice | torch.Tensor, values: torch.Tensor) -> QuantizedWeight:
        assert self.scheme.block is not None
        height = self.scheme.block[0]
        sources = torch.arange(self.shape[0], device=self.device)[index] // height
        firsts = sources[::height]
        if torch.equal(firsts.repeat_interleave(height)[: len(sources)], sources):
            return replace(self, values=values, scales=self.scales[firsts])
        return replace(self, scheme=self._ungrouped(), values=values, scales=self.scales[sources])

    def _ungrouped(self) -> WeightScheme:
        """Of blocks, one row high."""
        assert self.scheme.block is not None
        return replace(self.scheme, strategy="group", group=self.scheme.block[1], block=None)

    def columns(self, part: slice) -> QuantizedWeight:
        """Some inputs, as a rank of tensor parallelism has them of a layer that is split along its inputs.

        Raises BadModel where a scale's group, or a byte of 4-bit values, would lie on two ranks.
        """
        start, stop, step = part.indices(self.shape[1])
        if step != 1 or stop <= start:
            raise ValueError(f"columns {part} of {self.shape[1]}: a part that is not empty, in steps of 1, is needed")
        span = 1 if self.groups_of is not None else self._span()
        per_byte = 8 // self.scheme.bits
        whole = stop == self.shape[1]
        if start % per_byte or (stop % per_byte and not whole):
            raise self._uncut(start, stop, per_byte, "4-bit values lie two in a byte")
        kept: dict[str, Any] = {"values": self.values[:, start // per_byte : -(-stop // per_byte)]}
        if self.groups_of is not None:
            kept["groups_of"] = self.groups_of[part]
        elif self.scales.shape[1] > 1:
            if start % span or (stop % span and not whole):
                raise self._uncut(start, stop, span, f"its scales are for {span} inputs each")
            for name in ("scales", "zeros", "offsets"):
                scales = getattr(self, name)
                if scales is not None:
                    kept[name] = scales[:, start // span : -(-stop // span)]
        odd = stop - start if self.scheme.bits == 4 and (stop - start) % 2 else None
        return replace(self, inputs=odd, **kept)

    def _uncut(self, start: int, stop: int, span: int, reason: str) -> BadModel:
        columns, width = self.shape[1], stop - start
        fitting = [tp for tp in (2, 3, 4, 5, 6, 7, 8, 16) if columns % tp == 0 and columns // tp % span == 0]
        smaller = math.gcd(width, span)
        advice = f"split it over {', '.join(map(str, fitting))} ranks" if fitting else "serve it on one rank"
        if smaller >= 16:
            advice += f", or quantize it anew in groups of {smaller}"
        return BadModel(
            "wrong_shape",
            f"{self.name or 'a quantized weight'}: inputs {start} … {stop - 1} of {columns} cannot be a part of their "
            f"own: {reason}, and {span} does not divide in/TP = {width}",
            advice,
        )

    @staticmethod
    def stacked(parts: Sequence[QuantizedWeight]) -> QuantizedWeight:
        """One weight from several that read the same inputs, their outputs after each other (q, k, v; gate, up).

        Scales of whole tensors become those of channels; the greatest of the input scales is the one of all. Raises
        BadModel where the parts are quantized otherwise than each other.
        """
        first = parts[0]
        if len(parts) == 1:
            return first
        block = first.scheme.block
        if first.scheme.strategy == "tensor":
            parts = [part._by_channels() for part in parts]
        elif block is not None and any(part.shape[0] % block[0] for part in parts[:-1]):
            parts = [part._by_rows() for part in parts]  # a block would go on in the next part
        for part in parts[1:]:
            for what, ours, theirs in (
                ("scheme", parts[0].scheme, part.scheme),
                ("inputs", parts[0].shape[1], part.shape[1]),
                ("scales of", parts[0].scales.dtype, part.scales.dtype),
                ("activations", parts[0].activations, part.activations),
            ):
                if ours != theirs:
                    raise _different(parts[0], part, f"{what} {ours} and {theirs}")
            if not _same(parts[0].groups_of, part.groups_of):
                raise _different(parts[0], part, "other orders of their inputs (g_idx)")
        joined: dict[str, Any] = {}
        for name in ("values", "scales", "zeros", "offsets"):
            pieces = [getattr(part, name) for part in parts]
            if any(piece is None for piece in pieces) and any(piece is not None for piece in pieces):
                raise _different(parts[0], parts[-1], f"{name} in some of them only")
            if pieces[0] is not None:
                joined[name] = torch.cat(pieces)
        inputs = [part.input_scale for part in parts if part.input_scale is not None]
        scale = torch.stack([one.reshape(()) for one in inputs]).amax() if inputs else None
        return replace(parts[0], input_scale=scale, name=" + ".join(part.name for part in parts), **joined)

    def _by_channels(self) -> QuantizedWeight:
        """The scale of the whole tensor, once for each output."""
        if self.scheme.strategy != "tensor":
            return self
        zeros = None if self.zeros is None else self.zeros.expand(self.shape[0], 1)
        scheme = replace(self.scheme, strategy="channel")
        return replace(self, scheme=scheme, scales=self.scales.expand(self.shape[0], 1), zeros=zeros)

    def _by_rows(self) -> QuantizedWeight:
        """Blocks as groups of single rows."""
        if self.scheme.block is None:
            return self
        sources = torch.arange(self.shape[0], device=self.device) // self.scheme.block[0]
        return replace(self, scheme=self._ungrouped(), scales=self.scales[sources])


def unpack_nibbles(packed: torch.Tensor, columns: int) -> torch.Tensor:
    """uint8 [out, ⌈columns/2⌉] → uint8 [out, columns] of 0 … 15; the lower nibble is the earlier one."""
    pairs = torch.stack((packed & 15, packed >> 4), dim=-1)
    return pairs.flatten(1)[:, :columns]


def pack_nibbles(values: torch.Tensor) -> torch.Tensor:
    """Integers of 0 … 15, [out, columns] → uint8 [out, ⌈columns/2⌉]."""
    values = values.to(torch.uint8)
    if values.shape[1] % 2:
        values = torch.nn.functional.pad(values, (0, 1))
    return values[:, ::2] | (values[:, 1::2] << 4)


def _same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    return a is b if a is None or b is None else torch.equal(a, b)


def _different(a: QuantizedWeight, b: QuantizedWeight, how: str) -> BadModel:
    return BadModel("wrong_shape", f"{a.name or 'a part'} and {b.name or 'another'} cannot be one weight: {how}")
