"""Where a running engine's memory is, by the bytes of its tensors, beside what the plan (`engines.native.memory`) gave.

weights     of the model; weights that a library has packed can't be asked for their size: what the layer says of them
kv_cache    the pools of blocks
tables      of the rows and of the sampler
swap        host memory for KV blocks (beside a GPU, with that of offloaded layers, it is no part of the device's)
graphs      of a GPU: what captured decode steps keep for themselves
workspace   of a GPU: allocated, and none of the above: activations, library workspaces
reserved    of a GPU: kept by the allocator, and free
other       the rest of the process (CPU), or of what the device has given away: contexts, kernels, other processes
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from engines.native.offload import pinned

if TYPE_CHECKING:
    from engines.native.runner import ModelRunner

OURS = "engines."
"""Objects of these packages are looked into."""


def table(runner: ModelRunner) -> dict[str, Any]:
    """{device, dtype, parts: [{part, bytes, planned, measured}], total, planned_total, process, gpu}; sizes in bytes,
    planned null where the plan has no such part. Takes some milliseconds; the caller's loop waits."""
    plan, device = runner.sizes.plan, runner.device
    # Of a draft the proposer's, which nobody looks into here.
    planned = plan.activations + plan.verification + plan.draft_weights + plan.draft_kv
    host = Sizes()
    host.add(pinned(runner.model.weights.layers))
    weights = Sizes(host.seen)
    weights.add(runner.model.weights)
    pools = Sizes(weights.seen)
    pools.add(runner.model.kv)
    host.add(runner._host)
    tables = Sizes(weights.seen)
    tables.add([runner.rows, runner.sampler])
    parts = [
        _part("weights", weights.bytes + weights.packed, plan.weights, measured=not weights.packed),
        _part("kv_cache", pools.bytes, plan.kv_cache),
        _part("tables", tables.bytes),
    ]
    gpu = None
    if device.type == "cuda":
        gpu = _gpu(device)
        known = sum(part["bytes"] for part in parts)
        parts += [
            _part("graphs", gpu["graphs"]),
            _part("workspace", max(0, gpu["allocated"] - known - gpu["graphs"]), planned),
            _part("reserved", max(0, gpu["reserved"] - gpu["allocated"])),
            _part("other", max(0, gpu["total"] - gpu["free"] - gpu["reserved"]), plan.overhead),
        ]
        total = gpu["total"] - gpu["free"]
    else:
        total = resident()
        parts.append(_part("swap", host.bytes))
        known = sum(part["bytes"] for part in parts)
        parts.append(_part("other", max(0, total - known), planned + plan.overhead))
    return {
        "device": str(device),
        "dtype": runner.sizes.dtype,
        "kv_cache_dtype": runner.sizes.kv_cache_dtype or str(runner.model.kv[0][0].dtype).removeprefix("torch."),
        "parts": parts,
        "total": total,
        "planned_total": plan.total,
        "process": {"core_resident": resident(), "host_pinned": host.bytes if gpu else 0},
        "gpu": gpu,
    }


def resident() -> int:
    """Bytes of this process in memory; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _part(name: str, size: int, planned: int | None = None, *, measured: bool = True) -> dict[str, Any]:
    return {"part": name, "bytes": size, "planned": planned, "measured": measured}


def _gpu(device: torch.device) -> dict[str, int]:
    free, total = torch.cuda.mem_get_info(device)
    private = sum(
        segment["total_size"]
        for segment in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call] # torch's
        if tuple(segment["segment_pool_id"]) != (0, 0)
    )
    return {
        "total": total,
        "free": free,
        "allocated": torch.cuda.memory_allocated(device),
        "reserved": torch.cuda.memory_reserved(device),
        "peak_allocated": torch.cuda.max_memory_allocated(device),
        "graphs": private,
    }


class Sizes:
    """Bytes of all tensors that hang on some objects, each piece of memory once. packed: bytes that objects say, by an
    attribute `packed_bytes`, of pieces that are a library's own. seen: pieces that were counted already, elsewhere."""

    def __init__(self, seen: set[int] | None = None) -> None:
        self.bytes = self.packed = 0
        self.seen = set() if seen is None else seen
        self._visited: set[int] = set()

    def add(self, root: object) -> None:
        todo = [root]
        while todo:
            item = todo.pop()
            if id(item) in self._visited:
                continue
            self._visited.add(id(item))
            if isinstance(item, torch.Tensor):
                self._count(item)
            else:
                if type(item).__module__.startswith(OURS):
                    self.packed += getattr(item, "packed_bytes", 0)
                todo.extend(_children(item))

    def _count(self, tensor: torch.Tensor) -> None:
        if tensor.layout is torch._mkldnn:  # type: ignore[attr-defined] # its layout has no storage to ask
            self.bytes += tensor.numel() * tensor.element_size()
            return
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.seen:
            self.seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()


def _children(item: object) -> Iterator[object]:
    if isinstance(item, dict):
        yield from item.values()
    elif isinstance(item, list | tuple | set):
        yield from item
    elif isinstance(item, MethodType):
        yield item.__self__
    elif isinstance(item, FunctionType):
        yield from (cell.cell_contents for cell in item.__closure__ or ())
    elif type(item).__module__.startswith(OURS):
        yield from _fields(item)


def _fields(item: object) -> Iterable[object]:
    names = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
    values = [getattr(item, name) for name in names if hasattr(item, name)]
    return [*values, *vars(item).values()] if hasattr(item, "__dict__") else values
