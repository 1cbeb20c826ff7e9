"""From the mapped file to a GPU through two pinned buffers: while one is on its way, the other is filled.

A copy from pageable memory goes through the driver's own small buffer and waits for it; pinned memory takes the bus at
its full rate, and the fill, which reads the page cache with all of torch's threads, is hidden behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

BUFFER = 32 * 2**20
"""Bytes of each of the two."""


class Staging:
    """Copies to one device, in order, on a stream of its own. Pinned memory is freed with it."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call] # torch's
        self._buffers = [torch.empty(BUFFER, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        self._read = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call] # torch's
        self._next = 0

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """source: on the host, any strides; target: on the device, of the same shape, any dtype and strides. Returns
        when the source may go; what the current stream does from now on sees the target whole."""
        current = torch.cuda.current_stream(target.device)
        self._stream.wait_stream(current)  # which may still use the memory that the target was made of
        source, target = _matrix(source), _matrix(target)
        for rows, columns in pieces(source.shape[0], source.shape[1], BUFFER // source.element_size()):
            self._send(source[rows, columns], target[rows, columns])
        current.wait_stream(self._stream)

    def _send(self, source: torch.Tensor, target: torch.Tensor) -> None:
        at, self._next = self._next, 1 - self._next
        self._read[at].synchronize()
        nbytes = source.numel() * source.element_size()
        staged = self._buffers[at][:nbytes].view(source.dtype).view(source.shape)
        staged.copy_(source)
        with torch.cuda.stream(self._stream):
            if source.dtype == target.dtype and target.is_contiguous():
                target.copy_(staged, non_blocking=True)
            else:  # as it is over the bus, and there into its place
                target.copy_(staged.to(target.device, non_blocking=True))
            self._read[at].record(self._stream)


def _matrix(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as [rows, columns]."""
    return tensor.unsqueeze(1) if tensor.dim() == 1 else tensor if tensor.dim() == 2 else tensor.flatten(1)


def pieces(rows: int, columns: int, most: int) -> Iterator[tuple[slice, slice]]:
    """Parts of a matrix, of at most `most` values each: as many whole rows as go into one, or parts of a row."""
    wide = min(columns, most)
    high = most // wide
    for first in range(0, rows, high):
        for left in range(0, columns, wide):
            yield slice(first, first + high), slice(left, left + wide)
