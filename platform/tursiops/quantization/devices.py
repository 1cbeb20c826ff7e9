"""What a version may be meant for: this machine's processor, and the GPUs of the hardware table."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.planner import hardware
from tursiops.deployments.refusals import refuse
from tursiops.fleet.models import Gpu

CPU = "cpu"
COMPUTE_CAPABILITY = {
    "a10": "sm86",
    "l20": "sm89",
    "l40s": "sm89",
    "rtx4090": "sm89",
    "a100": "sm80",
    "a100_pcie": "sm80",
    "h20": "sm90",
    "h100": "sm90",
    "h100_pcie": "sm90",
    "h200": "sm90",
    "b200": "sm100",
}
"""Key of the hardware table → compute capability, as optimizers name it (CUDA programming guide, table of devices)."""


@dataclass(frozen=True)
class Device:
    """sm: "cpu", or the compute capability as "sm90". present: a node has one."""

    key: str
    name: str
    sm: str
    present: bool

    @property
    def kind(self) -> str:
        """As engines.api.LaunchSpec.device."""
        return "cpu" if self.key == CPU else "cuda"


def devices() -> list[Device]:
    """The processor first, then GPUs that nodes have, then the others."""
    here = {key for name in set(Gpu.objects.values_list("name", flat=True)) if (key := _key(name))}
    table = hardware.table()
    gpus = [Device(key, table[key].name, sm, key in here) for key, sm in COMPUTE_CAPABILITY.items() if key in table]
    return [Device(CPU, "CPU", CPU, True), *sorted(gpus, key=lambda device: not device.present)]


def device(key: str) -> Device:
    """Raises TursiopsError naming the field."""
    found = {each.key: each for each in devices()}
    if key not in found:
        raise refuse("device", f"{key!r} is not known here.", f"Choose one of {', '.join(found)}.")
    return found[key]


def _key(name: str) -> str:
    """Of a GPU by the name that its driver reports; empty for one that the table lacks."""
    try:
        return hardware.gpu(name).key
    except hardware.UnknownGpu:
        return ""
