"""Layers whose weights do not stay on the device: kept in host memory or read from the model's files, and brought to
one of two slots on the device before they compute, while the layers before compute.

A slot is one flat buffer; every offloaded layer has a block for each slot, whose weights are views into it. So a step
makes no tensors, it only waits until the right bytes are there. With K offloaded layers, for ever: the n-th use of one
is in slot n % 2; `acquire` waits for its bytes; once it has computed, `release` lets its slot be filled for use n + 2.
After a step's last layer comes the next step's first one, which is brought while the head and the sampler run.

On a GPU copies run on a stream of their own: they wait by an event until what read the slot has run, and passes wait
by an event for the bytes; the host waits for neither, so steps are launched ahead as ever. Host memory is pinned, or
copies would neither overlap nor reach the speed of the bus. On a CPU a thread copies. From a disk a thread reads,
dequantizes and merges a layer as at load, and the pages of the files go back to the system with their map.
"""

from __future__ import annotations

import io
import logging
import pickle
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import torch

from engines.native.config import ConfigError
from engines.native.models.blocks import Block, LayerWeights
from engines.native.ops.base import Batch

log = logging.getLogger(__name__)

SLOTS = 2
ALIGNMENT = 256  # bytes; of every tensor in a slot, as CUDA allocates
LEAST_PIECE = 2**20
"""Bytes. torch rounds a pinned allocation up to a power of two, so a layer is pinned in pieces of such sizes."""

Fill = Callable[[torch.Tensor], None]
"""Writes a layer's bytes into a slot, uint8 [bytes]; on a GPU in the order of the current stream."""
Read = Callable[[int], LayerWeights]
"""Index of a layer → its weights, on the CPU, from the model's files."""


class Offload:
    """The layers of one model that are kept elsewhere. `take` each once, in order, then `start`."""

    def __init__(self, read: Read, device: torch.device, *, layers: int, count: int, to: str) -> None:
        """count: of `layers`, spread evenly, so that others compute while one is brought. to: "host" or "disk"."""
        self.indices = [index * layers // count for index in range(count)]
        self._read, self._device, self._to = read, device, to
        self.host: list[torch.Tensor] = []  # pieces, uint8
        self._fills: list[Fill] = []
        self._nbytes = 0  # of the largest
        self._slots: list[torch.Tensor] = []
        self._prefetcher: Prefetcher | None = None

    def take(self, index: int) -> OffloadedLayer:
        layer = self._read(index)
        structure, tensors = apart(layer)
        layout = Layout.of(structure, tensors)
        self._nbytes = max(self._nbytes, layout.nbytes)
        position = len(self._fills)
        if self._to == "disk":
            self._fills.append(_FromDisk(self._read, index, layout, self._device))
        else:
            pieces = host_memory(layout.nbytes, self._device)
            self.host += pieces
            self._fills.append(_FromHost(layout, tensors, pieces))
        return OffloadedLayer(layer.input_norm.to(self._device, copy=True), position, layout, self)

    def start(self) -> None:
        self._slots = [torch.empty(self._nbytes, dtype=torch.uint8, device=self._device) for _ in range(SLOTS)]
        self._prefetcher = Prefetcher(self._fills, self._slots)
        log.info(
            "%d layers of %.1f MiB are kept in %s and brought in turn; decode steps run without graphs",
            len(self._fills), self._nbytes / 2**20, {"disk": "the model's files"}.get(self._to, "host memory"),
        )  # fmt: skip

    def block(self, layer: OffloadedLayer, make: Callable[[LayerWeights], Block]) -> Block:
        assert self._prefetcher is not None
        blocks = [make(layer.layout.views(slot)) for slot in self._slots]
        return OffloadedBlock(layer.position, self._prefetcher, blocks)


@dataclass(frozen=True, slots=True)
class OffloadedLayer:
    """Stands for LayerWeights in a decoder's list. input_norm: [hidden], on the device, for the layer before reads it.
    position: among the offloaded layers."""

    input_norm: torch.Tensor
    position: int
    layout: Layout
    owner: Offload

    def block(self, make: Callable[[LayerWeights], Block]) -> Block:
        return self.owner.block(self, make)


def pinned(layers: Sequence[LayerWeights | OffloadedLayer]) -> list[torch.Tensor]:
    """What a decoder's layers keep in host memory beside a GPU."""
    owners = {id(layer.owner): layer.owner for layer in layers if isinstance(layer, OffloadedLayer)}
    return [piece for owner in owners.values() for piece in owner.host if piece.is_pinned()]


class OffloadedBlock:
    """A block that is there for each slot; which one computes is known when its bytes are asked for."""

    def __init__(self, position: int, prefetcher: Prefetcher, blocks: Sequence[Block]) -> None:
        self._position, self._prefetcher, self._blocks = position, prefetcher, blocks
        self._block = blocks[0]

    def attend(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        self._block = self._blocks[self._prefetcher.acquire(self._position)]
        return self._block.attend(x, batch)

    def pick(
        self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor, index: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self._block.pick(out, x, residual, index)

    def finish(self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = self._block.finish(out, x, residual)
        self._prefetcher.release()
        return made


class Prefetcher:
    """Fills the slots in the order of use. For one thread, which computes; fills run in another."""

    def __init__(self, fills: Sequence[Fill], slots: Sequence[torch.Tensor]) -> None:
        self._fills, self._slots = fills, slots
        self._worker = ThreadPoolExecutor(1, "offload")
        self._coming: deque[tuple[int, int, Future[None]]] = deque()  # (position, slot, its fill), in order of use
        self._next = 0  # position to be brought next
        self._used: int | None = None  # slot whose layer computes, or has computed without a `release`
        self._cuda = slots[0].device if slots[0].is_cuda else None
        if self._cuda is not None:
            self._stream = torch.cuda.Stream(self._cuda)  # type: ignore[no-untyped-call] # torch's
            self._free = [torch.cuda.Event() for _ in slots]  # type: ignore[no-untyped-call] # torch's
            self._ready = [torch.cuda.Event() for _ in slots]  # type: ignore[no-untyped-call] # torch's
        self._begin(0)

    def acquire(self, position: int) -> int:
        """The slot in which the layer's bytes are, for what is launched from now on until `release`. Raises what a
        fill raised; the next call begins anew."""
        self.release()
        if not self._coming or self._coming[0][0] != position:  # a step that broke off, or a layer of its own
            self._begin(position)
        _, slot, filled = self._coming.popleft()
        filled.result()
        if self._cuda is not None:
            torch.cuda.current_stream(self._cuda).wait_event(self._ready[slot])
        self._used = slot
        return slot

    def release(self) -> None:
        """What reads the slot in use has been launched: bring the layer after next into it."""
        if self._used is not None:
            slot, self._used = self._used, None
            self._bring(slot)

    def _begin(self, position: int) -> None:
        wait([filled for _, _, filled in self._coming])
        self._coming.clear()
        self._next = position
        for slot in range(len(self._slots)):
            self._bring(slot)

    def _bring(self, slot: int) -> None:
        position, self._next = self._next, (self._next + 1) % len(self._fills)
        if self._cuda is not None:
            self._free[slot].record(torch.cuda.current_stream(self._cuda))
        self._coming.append((position, slot, self._worker.submit(self._fill, position, slot)))

    @torch.inference_mode()
    def _fill(self, position: int, slot: int) -> None:
        if self._cuda is None:
            self._fills[position](self._slots[slot])
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._free[slot])
            self._fills[position](self._slots[slot])
            self._ready[slot].record(self._stream)


class _FromHost:
    def __init__(self, layout: Layout, tensors: Sequence[torch.Tensor], pieces: Sequence[torch.Tensor]) -> None:
        self._pieces = pieces
        flat = torch.empty(layout.nbytes, dtype=torch.uint8)
        layout.write(tensors, flat)
        start = 0
        for piece in self._pieces:
            piece.copy_(flat[start : start + len(piece)])
            start += len(piece)

    def __call__(self, slot: torch.Tensor) -> None:
        _send(self._pieces, slot)


class _FromDisk:
    def __init__(self, read: Read, index: int, layout: Layout, device: torch.device) -> None:
        self._read, self._index, self._layout, self._device = read, index, layout, device

    def __call__(self, slot: torch.Tensor) -> None:
        """A GPU's copy has ended when this returns: what it reads from goes."""
        _, tensors = apart(self._read(self._index))
        self._layout.write(tensors, slot)
        if slot.is_cuda:
            torch.cuda.current_stream(self._device).synchronize()


def _send(pieces: Sequence[torch.Tensor], slot: torch.Tensor) -> None:
    start = 0
    for piece in pieces:
        slot[start : start + len(piece)].copy_(piece, non_blocking=True)
        start += len(piece)


def host_memory(nbytes: int, device: torch.device) -> list[torch.Tensor]:
    """Host memory of `nbytes` in pieces, uint8; pinned beside a GPU. Raises ConfigError where there is not enough."""
    try:
        if device.type != "cuda":
            return [torch.empty(nbytes, dtype=torch.uint8)]
        return [torch.empty(size, dtype=torch.uint8, pin_memory=True) for size in piece_sizes(nbytes)]
    except RuntimeError as error:
        raise ConfigError(
            f"options.offload_layers: the host gives no more memory for them ({error}); offload fewer layers, or set "
            "options.offload_to to 'disk'"
        ) from error


def piece_sizes(nbytes: int) -> list[int]:
    """Powers of two, the greatest first, and a rest below LEAST_PIECE; together `nbytes`."""
    sizes = []
    while nbytes > LEAST_PIECE:
        sizes.append(1 << (nbytes.bit_length() - 1))
        nbytes -= sizes[-1]
    return [*sizes, nbytes] if nbytes else sizes


@dataclass(frozen=True, slots=True)
class Layout:
    """A layer in a flat buffer. structure: the layer without its tensors; places: (first byte, shape, dtype) of them
    in the order of `apart`."""

    structure: bytes
    places: list[tuple[int, torch.Size, torch.dtype]]
    nbytes: int

    @classmethod
    def of(cls, structure: bytes, tensors: Sequence[torch.Tensor]) -> Layout:
        places, end = [], 0
        for tensor in tensors:
            places.append((end, tensor.shape, tensor.dtype))
            end += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        return cls(structure, places, end)

    def write(self, tensors: Sequence[torch.Tensor], buffer: torch.Tensor) -> None:
        for tensor, view in zip(tensors, self._in(buffer), strict=True):
            view.copy_(tensor)

    def views(self, buffer: torch.Tensor) -> LayerWeights:
        """The layer, its tensors in `buffer`."""
        layer: LayerWeights = _Giving(self.structure, self._in(buffer)).load()  # bytes that `apart` made
        return layer

    def _in(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        return [
            buffer[start : start + shape.numel() * dtype.itemsize].view(dtype).reshape(shape)
            for start, shape, dtype in self.places
        ]


def apart(layer: LayerWeights) -> tuple[bytes, list[torch.Tensor]]:
    """A layer's structure, and its tensors in the order in which they stand in it, each once."""
    file = io.BytesIO()
    pickler = _Taking(file)
    pickler.dump(layer)
    return file.getvalue(), list(pickler.found.values())


class _Taking(pickle.Pickler):
    """Leaves a number in the place of each tensor. No class in a function: its cycles would hold the tensors until the
    collector comes."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.found: dict[int, torch.Tensor] = {}
        self._numbers: dict[int, int] = {}

    def persistent_id(self, item: Any) -> int | None:
        if not isinstance(item, torch.Tensor):
            return None
        self.found.setdefault(id(item), item)
        return self._numbers.setdefault(id(item), len(self._numbers))


class _Giving(pickle.Unpickler):
    def __init__(self, structure: bytes, tensors: list[torch.Tensor]) -> None:
        super().__init__(io.BytesIO(structure))
        self._tensors = tensors

    def persistent_load(self, number: int) -> torch.Tensor:
        return self._tensors[number]
