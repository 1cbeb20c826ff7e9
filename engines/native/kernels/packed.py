"""How a quantized weight lies in a GPU's memory, so that a kernel takes whole registers of it apart in place.

A block of one output's inputs is cut into parts: 2 of 64 inputs for 8 bits, 4 of 64 for 4 bits (of 32 where groups or
the inputs are not whole 64s, whole 256s). A word of 16 bits holds one input of each part, the first part in the lowest
bits: word j of a block is inputs j and j + 64, or j, j + 64, j + 128, j + 192. A word is as wide as an activation, so
the values that come out of it stand where the tensor cores want them, and no value moves between threads.

Words of 8 bits read as bytes are a plain matrix whose inputs are in another order (`order`): two such matrices
multiply like plain ones, so the same memory serves products with 8-bit activations (`kernels.scaled`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

BLOCK = 128
FORMS = {"int4": 4, "int8": 8, "fp8": 8}
"""Form → bits."""


@dataclass(frozen=True, slots=True)
class Packed:
    """words: int16 [out, blocks × part]. form: a key of FORMS. inputs: before they were padded to whole blocks.

    scales: [groups, out / height], float32 or 16 bits; groups of `group` inputs, 0: one group. height: outputs that
    share a scale, 1 or 128. zeros: of int4, uint8 [groups, out], or None for 8. part: inputs of a part.
    """

    form: str
    words: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    inputs: int
    group: int = 0
    height: int = 1
    part: int = 64

    @property
    def block(self) -> int:
        return self.part * 16 // FORMS[self.form]

    @property
    def outputs(self) -> int:
        return len(self.words)

    @property
    def padded(self) -> int:
        """Inputs, in whole blocks."""
        return self.words.shape[1] * 16 // FORMS[self.form]

    @property
    def bytes(self) -> torch.Tensor:
        """[out, padded] of 8 bits, inputs in `order`."""
        return self.words.view(torch.float8_e4m3fn if self.form == "fp8" else torch.int8)

    @property
    def nbytes(self) -> int:
        zeros = 0 if self.zeros is None else self.zeros.nbytes
        return self.words.nbytes + self.scales.nbytes + zeros


def fits(form: str, group: int) -> bool:
    """Whether groups of so many inputs (0: one) lie on whole parts of blocks."""
    return group % (BLOCK * FORMS[form] // 16) == 0


def part_of(form: str, inputs: int, group: int) -> int:
    """Inputs of a part: as many as a line of the memory has words, where that pads nothing and groups allow it."""
    return 32 if form == "int4" and (group % 64 or -(-inputs // BLOCK) % 2) else 64


def pack(values: torch.Tensor, form: str, part: int = 64) -> torch.Tensor:
    """values [out, in] (int8, float8_e4m3fn; of int4 uint8 0 … 15) → words; what is padded is 0, of int4 8."""
    bits = FORMS[form]
    parts, bytes_ = 16 // bits, values.view(torch.uint8)
    bytes_ = F.pad(bytes_, (0, -values.shape[1] % (part * parts)), value=8 if bits == 4 else 0)
    blocks = bytes_.view(len(values), -1, parts, part)
    if bits == 8:
        return blocks.transpose(2, 3).contiguous().view(torch.int16).flatten(1)
    low, high = (blocks[:, :, at] | blocks[:, :, at + 1] << 4 for at in (0, 2))
    return torch.stack((low, high), -1).view(torch.int16).flatten(1)


def order(padded: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """int64 [padded]: which input stands at each place of `Packed.bytes`."""
    inputs = torch.arange(padded, device=device).view(-1, 2, BLOCK // 2)
    return inputs.transpose(1, 2).flatten()
