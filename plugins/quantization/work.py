"""Finished layers on disk, where an attempt after a crash finds them: terms.LayerSink.

A layer is one safetensors file, its tensors named and laid out as in the finished checkpoint; it appears under its name
when it is whole. The folder belongs to one plan (model, recipe, calibration rows): another plan empties it.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from engines.api import size_text
from engines.native.loader.names import file_name
from engines.native.quant import packing
from engines.native.quant.scheme import ActivationScheme, LinearScheme, WeightScheme
from engines.native.quant.weight import QuantizedWeight
from engines.protocol import ChildError
from plugins.quantization.terms import GroupReport, LayerResult

_STATE, _TABLE = "state.json", "embedding.safetensors"

Told = Callable[[LayerResult], None]
"""Called with a layer once it lies on disk."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What the folder says of one layer. schemes: module of the checkpoint → how it is kept."""

    path: Path
    schemes: dict[str, LinearScheme]
    reports: tuple[GroupReport, ...]
    kv_scales: tuple[list[float], list[float]] | None


class WorkFolder:
    """architecture: of the written checkpoint, whose names the files hold."""

    def __init__(self, path: Path, plan: str, architecture: str, told: Told = lambda layer: None) -> None:
        """plan: names the work; layers of another plan are thrown away."""
        self._path, self._architecture, self._told = path, architecture, told
        state = path / _STATE
        if not state.is_file() or state.read_text() != plan:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            _replace(state, lambda part: part.write_text(plan))
        for part in path.glob("*.part"):
            part.unlink()

    def done(self) -> int:
        """Layers that are there and whole, counted from the first."""
        count = 0
        while (found := self._layer(count)).is_file():
            try:
                with safe_open(found, "pt"):
                    count += 1
            except SafetensorError:  # a disk that lost what it had confirmed: this layer is made again
                found.unlink()
        return count

    # terms.LayerSink

    def take(self, layer: LayerResult) -> None:
        """Raises ChildError: bad_weights for values that are no numbers, disk_full."""
        tensors: dict[str, torch.Tensor] = {}
        about: dict[str, Any] = {"linears": {}, "floats": list(layer.floats), "kv": None}
        for name, weight in layer.linears.items():
            _check(name, weight)
            tensors |= self._packed(name, weight)
            about["linears"][name] = _scheme_json(weight)
        for name, tensor in layer.floats.items():
            if not bool(torch.isfinite(tensor).all()):
                raise _not_finite(name)
            tensors[self._theirs(name)] = tensor.float().contiguous()
        if layer.kv_scales is not None:
            attention = self._theirs(f"layers.{layer.index}.o.weight").rsplit(".", 2)[0]
            about["kv"] = [scale.float().flatten().tolist() for scale in layer.kv_scales]
            for kind, scale in zip(("k_scale", "v_scale"), layer.kv_scales, strict=True):
                tensors[f"{attention}.{kind}"] = scale.float().flatten().contiguous()
        about["reports"] = [asdict(report) for report in layer.reports]
        self._save(self._layer(layer.index), tensors, about)
        self._told(layer)

    def finished(self, index: int) -> LayerResult:
        tensors, about = self._load(self._layer(index))
        linears = {name: self._unpacked(name, tensors, scheme) for name, scheme in about["linears"].items()}
        floats = {name: tensors[self._theirs(name)] for name in about["floats"]}
        kv = None if about["kv"] is None else (torch.tensor(about["kv"][0]), torch.tensor(about["kv"][1]))
        return LayerResult(index, linears, floats, kv, tuple(GroupReport(**report) for report in about["reports"]))

    def embedding(self, table: QuantizedWeight) -> None:
        _check("embed", table)
        about: dict[str, Any] = {"linears": {"embed": _scheme_json(table)}, "floats": [], "kv": None, "reports": []}
        self._save(self._path / _TABLE, self._packed("embed", table), about)

    # What the finished checkpoint is made of

    def read(self, index: int) -> Finished:
        """Of a finished layer, all but its tensors."""
        return self._about(self._layer(index))

    def table(self) -> Finished | None:
        """The quantized embedding, where there is one."""
        path = self._path / _TABLE
        return self._about(path) if path.is_file() else None

    def remove(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)

    def _about(self, path: Path) -> Finished:
        with safe_open(path, "pt") as file:
            about = json.loads(file.metadata()["about"])
        schemes = {self._theirs(f"{name}.weight").removesuffix(".weight"): _scheme(one) for name, one in
                   about["linears"].items()}  # fmt: skip
        reports = tuple(GroupReport(**report) for report in about["reports"])
        return Finished(path, schemes, reports, about["kv"] and tuple(about["kv"]))

    def _layer(self, index: int) -> Path:
        return self._path / f"layer-{index:05}.safetensors"

    def _theirs(self, name: str) -> str:
        return file_name(name, "safetensors", self._architecture)

    def _packed(self, name: str, weight: QuantizedWeight) -> dict[str, torch.Tensor]:
        module = self._theirs(f"{name}.weight").removesuffix(".weight")
        layout = packing.layout_for(LinearScheme(weight.scheme, weight.activations))
        return {f"{module}.{kind}": _own(tensor) for kind, tensor in packing.packed(weight, layout).items()}

    def _unpacked(self, name: str, tensors: Mapping[str, torch.Tensor], about: dict[str, Any]) -> QuantizedWeight:
        module = self._theirs(f"{name}.weight").removesuffix("weight")
        own = {key.removeprefix(module): tensor for key, tensor in tensors.items() if key.startswith(module)}
        scheme, (rows, columns) = _scheme(about), about["shape"]
        return packing.unpacked(packing.layout_for(scheme), own, scheme, (rows, columns), name)

    @staticmethod
    def _load(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["about"])  # noqa: SIM118 # no mapping

    @staticmethod
    def _save(path: Path, tensors: dict[str, torch.Tensor], about: dict[str, Any]) -> None:
        metadata = {"format": "pt", "about": json.dumps(about)}
        with writing(path, sum(tensor.nbytes for tensor in tensors.values())):
            _replace(path, lambda part: save_file(tensors, part, metadata))


GOES_ON = "Free some space and start the job again: it goes on at the layer that it had reached."


@contextmanager
def writing(path: Path, needed: int, hint: str = GOES_ON) -> Iterator[None]:
    """Around what writes `needed` bytes at `path`. Raises ChildError for a disk that is full."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if is_full(error):
            raise disk_full(path, needed, hint) from error
        raise


def is_full(error: OSError | SafetensorError) -> bool:
    """safetensors has an error of its own for it, with the kernel's words; numpy counts what it could not write, and
    tells no number."""
    if isinstance(error, OSError) and error.errno is None:
        return "requested and" in str(error)
    return getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)


def disk_full(path: Path, needed: int = 0, hint: str = GOES_ON) -> ChildError:
    """needed: bytes that were to be written at `path`; 0 = unknown."""
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    free = size_text(shutil.disk_usage(there).free)
    message = f"the disk is full: {path} could not be written; {free} are free"
    if needed:
        message = f"the disk is full: {path} could not be written; {size_text(needed)} are needed, {free} are free"
    return ChildError("disk_full", message, hint)


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """A scale that several modules share is a tensor of each in the file."""
    return tensor.clone() if tensor.numel() == 1 else tensor.contiguous()


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Whole and on the disk before it has its name."""
    part = path.with_name(f"{path.name}.part")
    write(part)
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(part, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _check(name: str, weight: QuantizedWeight) -> None:
    for part in (weight.scales, weight.input_scale, weight.offsets):
        if part is not None and not bool(torch.isfinite(part.float()).all()):
            raise _not_finite(name)
    if weight.values.dtype == torch.float8_e4m3fn and bool(weight.values.float().isnan().any()):
        raise _not_finite(name)


def _not_finite(name: str) -> ChildError:
    return ChildError(
        "bad_weights",
        f"{name}: quantizing it gives values that are NaN or infinite",
        "Keep this layer in 16 bits (option keep), or choose another scheme.",
    )


def _scheme_json(weight: QuantizedWeight) -> dict[str, Any]:
    activations = weight.activations and asdict(weight.activations)
    return {"weight": asdict(weight.scheme), "activations": activations, "shape": list(weight.shape)}


def _scheme(about: dict[str, Any]) -> LinearScheme:
    weight = {**about["weight"], "block": about["weight"]["block"] and tuple(about["weight"]["block"])}
    activations = about["activations"]
    return LinearScheme(WeightScheme(**weight), activations and ActivationScheme(**activations))
