"""What can be made of a model: the schemes of all optimizers that are installed, and what devices do with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plugins.api import Optimizer
from tursiops.core.registry import optimizers
from tursiops.deployments.refusals import refuse
from tursiops.quantization.devices import Device, devices

BUILT_IN = "quantization"


@dataclass(frozen=True)
class Scheme:
    """about: as plugins.api.Optimizer.schemes() has it."""

    optimizer: str
    about: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.about["name"])

    @property
    def label(self) -> str:
        return str(self.about["label"])

    @property
    def maker(self) -> Optimizer:
        return made_by(self.optimizer)

    @property
    def grouped(self) -> bool:
        return "group_size" in self.about.get("options", [])

    def support(self, device: Device) -> dict[str, Any]:
        told = self.about["hardware"].get(device.sm)
        level, reason = (told["state"], told["reason"]) if told else ("unsupported", "Nothing is known of this device.")
        return {"device": device.key, "device_name": device.name, "level": level, "reason": reason}

    def gate(self, parameters: int) -> dict[str, float]:
        """The limits that a model of so many parameters has to keep where a person gives none."""
        for gate in self.about["gates"]:
            if gate["up_to_parameters"] is None or parameters <= gate["up_to_parameters"]:
                return {"perplexity_ratio": gate["perplexity_ratio"]}
        return {}

    def bits(self, group: int = 128) -> float:
        """Of a quantized weight, its scales counted; `group`: inputs that share one, where the scheme has groups. The
        scheme tells a factor of four digits: for groups of 128, scales and zeros are whole 32nds of a bit."""
        whole, scales = divmod(round(32 * 16 * float(self.about["size_factor"])) / 32, 1)
        return whole + scales * 128 / group


def made_by(optimizer: str) -> Optimizer:
    found: Optimizer = optimizers.get(optimizer)
    return found


def schemes() -> list[Scheme]:
    """Our own first. A name that two optimizers have is the first one's."""
    found: dict[str, Scheme] = {}
    for optimizer in sorted(optimizers.names(), key=lambda name: (name != BUILT_IN, name)):
        for about in made_by(optimizer).schemes():
            found.setdefault(str(about["name"]), Scheme(optimizer, about))
    return list(found.values())


def scheme(name: str, field: str = "scheme") -> Scheme:
    """Raises TursiopsError naming `field`."""
    found = {each.name: each for each in schemes()}
    if name not in found:
        raise refuse(field, f"There is no scheme {name!r}.", f"Choose one of {', '.join(found)}.")
    return found[name]


def listed(parameters: int = 0) -> list[dict[str, Any]]:
    """As the API tells them. parameters: of the model that limits are for; 0: of a large one."""
    targets = devices()
    return [
        {
            "name": each.name,
            "label": each.label,
            "description": f"{each.about['explanation']} {each.about['best_for']}".strip(),
            "explanation": each.about["explanation"],
            "best_for": each.about["best_for"],
            "optimizer": each.optimizer,
            "weights": each.about["weights"],
            "activations": each.about["activations"],
            "kv": each.about["kv"],
            "embedding": each.about["embedding"],
            "needs_data": each.about["needs_data"],
            "bits": each.bits(),
            "options_schema": each.about.get("options_schema") or {"type": "object", "properties": {}},
            "gate": each.gate(parameters or 7_000_000_000),
            "support": [each.support(device) for device in targets],
        }
        for each in schemes()
    ]
