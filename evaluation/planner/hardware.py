"""The table of devices, `hardware.toml`: every value with its source."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec
from msgspec import Struct

GIB = 2**30
_TERA, _GIGA, _MIB = 1e12, 1e9, 2**20
COMPUTE = {"float32": "fp32", "bfloat16": "bf16", "float16": "bf16", "fp8": "fp8", "int8": "int8"}
"""Format of a product's inputs → field of the table."""


class Sourced(Struct, frozen=True):
    value: float
    mark: str  # V, M, C, or "declared" where a person gave it
    source: str


class Gpu(Struct, kw_only=True, frozen=True):
    """One device. memory: bytes that a driver reports; bandwidth, link: bytes/s (link: one direction); rates of
    products: operations/s, by input format. `sources` has a line per value."""

    key: str
    name: str
    memory: int
    bandwidth: float
    compute: dict[str, float]
    link: float
    link_kind: str
    kind: Literal["gpu", "cpu"] = "gpu"
    sources: dict[str, Sourced] = {}

    def flops(self, fmt: str) -> float:
        """Operations/s of products whose inputs are `fmt`; a format that the device lacks is computed in 16 bits."""
        return self.compute.get(COMPUTE.get(fmt, fmt)) or self.compute["bf16"]

    def has(self, fmt: str) -> bool:
        return COMPUTE.get(fmt, fmt) in self.compute or (fmt == "float32" and self.kind == "cpu")

    def knee(self, weight_bytes: float, fmt: str = "bfloat16") -> float:
        """B*: rows at which a product stops being bound by reading its weights, F·bytes / (2·BW)."""
        return self.flops(fmt) * weight_bytes / (2 * self.bandwidth)


class UnknownGpu(ValueError):
    code = "unknown_gpu"


@cache
def table() -> dict[str, Gpu]:
    """Key → device, in the order of the file."""
    text = resources.files("evaluation.planner").joinpath("hardware.toml").read_text(encoding="utf-8")
    return {key: _gpu(key, row) for key, row in tomllib.loads(text).items()}


def gpu(key: str) -> Gpu:
    """By key, or by the name that a driver reports. Raises UnknownGpu, which lists the keys."""
    found = table().get(key.lower())
    if found is None:
        plain = _plain(key)
        found = next((each for each in table().values() if _plain(each.name).startswith(plain)), None)
    if found is None:
        raise UnknownGpu(f"gpu: {key!r} is not in hardware.toml; known are {', '.join(table())}")
    return found


def with_memory(device: Gpu, memory: int) -> Gpu:
    """The device with the bytes that its own driver reports."""
    sources = {**device.sources, "memory_mib": Sourced(memory / _MIB, "declared", "the device's driver")}
    return msgspec.structs.replace(device, memory=memory, sources=sources)


def _gpu(key: str, row: dict[str, Any]) -> Gpu:
    sourced = {name: Sourced(*value) for name, value in row.items() if isinstance(value, list)}
    return Gpu(
        key=key,
        name=row["name"],
        memory=int(sourced["memory_mib"].value) * _MIB,
        bandwidth=sourced["bandwidth"].value * _GIGA,
        compute={name: sourced[name].value * _TERA for name in ("fp32", "bf16", "fp8", "int8") if name in sourced},
        link=sourced["link"].value * _GIGA,
        link_kind=row["link_kind"],
        kind=row.get("kind", "gpu"),
        sources=sourced,
    )


def _plain(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum()).removeprefix("nvidia")
