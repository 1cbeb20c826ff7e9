"""Where an instance may run: filter, fit, score. A pure function that keeps the reason of every rejection.

filter   the node is ready, it is the one asked for, it has the device and the GPUs asked for
fit      the engine's own estimate against *free* memory, per GPU
score    files already there, fewer replicas of the same deployment, most room left
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from engines.api import Fit, size_text

FitOf = Callable[[str, int], Fit]
"""(device "cpu" | "cuda", bytes available to one instance) → need of the instance."""


@dataclass(frozen=True)
class GpuRoom:
    index: int
    name: str
    memory_total: int  # bytes
    memory_free: int  # bytes: measured, less what is promised to instances that still start


@dataclass(frozen=True)
class NodeRoom:
    name: str
    state: str  # health.NodeState
    reason: str
    memory_total: int
    memory_free: int
    gpus: tuple[GpuRoom, ...] = ()
    has_files: bool = True
    replicas_here: int = 0  # of the same deployment


@dataclass(frozen=True)
class Requirement:
    fit: FitOf
    device: str = "auto"  # "auto": the GPU where the node has one, else the processor
    gpus: int = 1  # per instance
    node_name: str = ""
    gpu_indices: tuple[int, ...] = ()  # the only ones allowed; empty: any


@dataclass(frozen=True)
class Choice:
    node: str
    device: str
    gpu_indices: tuple[int, ...]
    need: Fit
    why: str


@dataclass(frozen=True)
class Rejection:
    node: str
    filter: str  # "state" | "node" | "device" | "gpus" | "memory"
    reason: str
    need: Fit | None = None


@dataclass(frozen=True)
class Spot:
    """A place on a node, without regard to what is to run there."""

    node: str
    device: str
    gpu_indices: tuple[int, ...]
    memory_free: int  # bytes that one instance can have


@dataclass(frozen=True)
class Placement:
    chosen: Choice | None
    rejected: tuple[Rejection, ...]
    reason: str

    @property
    def short_of_memory(self) -> bool:
        """Room made on some node would help."""
        return self.chosen is None and any(item.filter == "memory" for item in self.rejected)

    def as_dict(self) -> dict[str, Any]:
        """As kept in Instance.placement and shown: who was chosen, why, and why not the others."""
        chosen = self.chosen
        return {
            "chosen": chosen.node if chosen else None,
            "device": chosen.device if chosen else None,
            "bytes": chosen.need.total if chosen else 0,
            "reason": self.reason,
            "rejected": [{"node": item.node, "filter": item.filter, "reason": item.reason} for item in self.rejected],
        }


def place(requirement: Requirement, nodes: Iterable[NodeRoom]) -> Placement:
    """The best node for one instance, or none with the filter that removed each."""
    candidates: list[tuple[tuple[Any, ...], Choice]] = []
    rejected: list[Rejection] = []
    for node in sorted(nodes, key=lambda item: item.name):
        outcome = _filter(requirement, node) or _fit(requirement, node)
        if isinstance(outcome, Rejection):
            rejected.append(outcome)
        else:
            candidates.append((_score(node, outcome), outcome))
    if candidates:
        best = max(candidates, key=lambda item: item[0])[1]
        losers = [
            Rejection(choice.node, "score", f"It fits too; {best.node} scored higher ({best.why}).")
            for _, choice in candidates
            if choice is not best
        ]
        return Placement(best, (*rejected, *losers), f"Placed on {best.node}: {best.why}.")
    return Placement(None, tuple(rejected), _summary(requirement, rejected))


def device_of(requirement: Requirement, node: NodeRoom) -> str:
    if requirement.device != "auto":
        return requirement.device
    return "cuda" if node.gpus or requirement.gpu_indices else "cpu"


def spot_of(requirement: Requirement, node: NodeRoom) -> Spot | Rejection:
    """Where on the node an instance would run and what is free there, whatever its memory need."""
    rejection = _filter(requirement, node)
    if rejection is not None:
        return rejection
    if device_of(requirement, node) == "cpu":
        return Spot(node.name, "cpu", (), node.memory_free)
    chosen = _emptiest(requirement, node)
    room = min(gpu.memory_free for gpu in chosen)
    return Spot(node.name, "cuda", tuple(gpu.index for gpu in chosen), room * requirement.gpus)


def _filter(requirement: Requirement, node: NodeRoom) -> Rejection | None:
    if requirement.node_name and node.name != requirement.node_name:
        return Rejection(node.name, "node", f"The deployment is pinned to node {requirement.node_name}.")
    if node.state != "ready":
        return Rejection(node.name, "state", f"It is {node.state}: {node.reason}")
    if device_of(requirement, node) == "cpu":
        return None
    if not node.gpus:
        return Rejection(node.name, "device", "It has no GPU, and the deployment asks for one.")
    present = {gpu.index for gpu in node.gpus}
    missing = [index for index in requirement.gpu_indices if index not in present]
    if missing:
        text = f"{_gpu_list(missing)}, chosen for the deployment: offline or absent."
        return Rejection(node.name, "gpus", text)
    allowed = len(requirement.gpu_indices) or len(node.gpus)
    if allowed < requirement.gpus:
        return Rejection(node.name, "gpus", f"An instance needs {requirement.gpus} GPUs and may use {allowed} here.")
    return None


def _fit(requirement: Requirement, node: NodeRoom) -> Choice | Rejection:
    if device_of(requirement, node) == "cpu":
        need = requirement.fit("cpu", node.memory_free)
        if need.fits and need.total <= node.memory_free:
            return Choice(node.name, "cpu", (), need, _why(node, need.total, node.memory_free))
        free, total = size_text(node.memory_free), size_text(node.memory_total)
        text = f"Memory: {free} free of {total}, needs {size_text(need.total)}."
        return Rejection(node.name, "memory", _with_engine_reason(text, need), need)
    return _fit_gpus(requirement, node)


def _fit_gpus(requirement: Requirement, node: NodeRoom) -> Choice | Rejection:
    """Shares are equal (tensor parallel), so the fullest of the chosen GPUs sets the limit."""
    chosen = _emptiest(requirement, node)
    room = min(gpu.memory_free for gpu in chosen)
    need = requirement.fit("cuda", room * requirement.gpus)
    share = -(-need.total // requirement.gpus)
    if need.host > node.memory_free:
        free, total = size_text(node.memory_free), size_text(node.memory_total)
        text = f"Host memory: {free} free of {total}, offloaded weights need {size_text(need.host)}."
        return Rejection(node.name, "memory", text, need)
    if need.fits and share <= room:
        indices = tuple(gpu.index for gpu in chosen)
        return Choice(node.name, "cuda", indices, need, f"{_gpu_list(indices)}, {_why(node, share, room)}")
    tight = [
        f"GPU {gpu.index} has {size_text(gpu.memory_free)} free of {size_text(gpu.memory_total)}"
        for gpu in chosen
        if gpu.memory_free < share
    ] or [f"{_gpu_list(gpu.index for gpu in chosen)}: {size_text(room)} free"]
    text = f"{'; '.join(tight)}; its share is {size_text(share)}."
    return Rejection(node.name, "memory", _with_engine_reason(text, need), need)


def _emptiest(requirement: Requirement, node: NodeRoom) -> list[GpuRoom]:
    """Of the GPUs allowed, as many as are asked for, in the order of their numbers."""
    allowed = [gpu for gpu in node.gpus if not requirement.gpu_indices or gpu.index in requirement.gpu_indices]
    return sorted(sorted(allowed, key=lambda gpu: (-gpu.memory_free, gpu.index))[: requirement.gpus], key=_index)


def _score(node: NodeRoom, choice: Choice) -> tuple[Any, ...]:
    room = max((gpu.memory_free for gpu in node.gpus if gpu.index in choice.gpu_indices), default=node.memory_free)
    return (node.has_files, -node.replicas_here, room - choice.need.total)


def _why(node: NodeRoom, need: int, room: int) -> str:
    parts = [f"{size_text(need)} of {size_text(room)} free"]
    if node.has_files:
        parts.append("the files are there")
    if node.replicas_here:
        parts.append(f"{node.replicas_here} of its replicas run there")
    return ", ".join(parts)


def _summary(requirement: Requirement, rejected: list[Rejection]) -> str:
    """Says which filter removed whom. Nodes that a pin leaves out are of interest only if the pinned one is unknown."""
    if not rejected:
        return "No node has reported yet. Start `manage.py node` on a host."
    told = [item for item in rejected if item.filter != "node"]
    if not told:
        known = ", ".join(item.node for item in rejected)
        return f"The deployment is pinned to node {requirement.node_name}, which is unknown. Known: {known}."
    shown = [f"{item.node}: {item.reason}" for item in told[:4]]
    if len(told) > 4:
        shown.append(f"{len(told) - 4} more nodes were rejected too.")
    return "No node can take it. " + " ".join(shown)


def _with_engine_reason(text: str, need: Fit) -> str:
    return f"{text} {need.reason}".strip() if not need.fits else text


def _index(gpu: GpuRoom) -> int:
    return gpu.index


def _gpu_list(indices: Iterable[int]) -> str:
    listed = list(indices)
    return f"GPU{'s' if len(listed) > 1 else ''} {', '.join(map(str, listed))}"
