"""llm-compressor (and auto-round) as the back end, in an environment of its own: the same recipe in, the same kind of
folder out. https://github.com/vllm-project/llm-compressor
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from engines.native.quant.scheme import KvScheme
from engines.native.vocabulary.folder import Folder
from engines.protocol import ChildError
from plugins.quantization.backends import Made, Order
from plugins.quantization.backends.native import linear_of
from plugins.quantization.backends.worker import Work, follow
from plugins.quantization.environments import Environment, ensure, pins_of
from plugins.quantization.export import kv_json, placed, scheme_json, write_unquantized, written_bytes
from plugins.quantization.spec import Options
from plugins.quantization.work import writing

ENVIRONMENT = Environment(
    "llm-compressor",
    pins_of(Path(__file__).with_name("llm_compressor.txt")),
    ("llmcompressor", "auto_round"),
    2 * 2**30,
)
_WORKER = Path(__file__).with_name("llm_compressor_worker.py")
_MADE, _READY = 0.1, 0.15
"""Of the progress: the environment, then the model as transformers reads it; then the work."""
_WRITTEN = 0.97
BEGINS_ANEW = "Free some space and start the job again: it begins anew."


def run(order: Order) -> Made:
    """Raises ChildError."""
    python = ensure(ENVIRONMENT, lambda share, text: order.say(_MADE * share, text))
    making, place = (order.staging.with_name(f"{order.staging.name}.{part}") for part in ("making", "unquantized"))
    if making.exists() or place.exists():
        order.channel.log("an earlier attempt was cut off; llm-compressor keeps nothing of it, and begins anew")
    order.channel.log("llm-compressor writes at its end: a job that is cut off before begins anew")
    try:
        for left in (making, place):
            shutil.rmtree(left, ignore_errors=True)
        place.mkdir()
        spec = _spec(order, place, making)
        order.say(_READY, "loading the model")
        made = Made(Folder(making), notes=unheeded(order.options))
        needed = written_bytes(order.options, order.target, order.group)
        follow(python, _WORKER, spec, _Run(order, made).hear, Work("llm-compressor", making, needed, BEGINS_ANEW))
        order.say(_WRITTEN, "checking what was written")
        with writing(making, needed, BEGINS_ANEW):
            _finish(order, made)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)
    made.folder = placed(made.folder, order.staging)
    return made


def _spec(order: Order, place: Path, making: Path) -> dict[str, Any]:
    """What the worker is told; the model and the rows lie in `place`."""
    model = place / "model"
    model.mkdir()
    write_unquantized(
        order.target, Folder(model), lambda share: order.say(_MADE, "writing the model for transformers"), BEGINS_ANEW
    )
    rows = place / "rows.npy"
    if order.calibration is not None:
        with writing(rows, order.calibration.rows.nbytes, BEGINS_ANEW):
            np.save(rows, order.calibration.rows)
    return {
        "model": str(model),
        "output": str(making),
        "rows": str(rows) if order.calibration is not None else "",
        "stages": stages(order),
        "dtype": order.target.dtype,
    }


def stages(order: Order) -> list[dict[str, Any]]:
    """The recipe as llm-compressor's modifiers, by name."""
    options = order.options
    ignore = ["lm_head", *sorted(order.kept)]
    kv = {"kv_cache_scheme": kv_json(KvScheme("float"))} if options.kv_format == "fp8" else {}
    linear = linear_of(options, order.group)
    if linear is None:
        return [{"kind": "QuantizationModifier", "ignore": ignore, **kv}]
    about = {name: value for name, value in scheme_json(linear).items() if name != "format"}
    about["weights"]["actorder"] = None
    rounding: dict[str, Any] = {
        "kind": "QuantizationModifier",
        "config_groups": {"group_0": {"targets": ["Linear"], **about}},
        "ignore": ignore,
        **kv,
    }
    if "gptq" in options.method:
        rounding |= {"kind": "GPTQModifier", "dampening_frac": options.damping, "actorder": None}
        if options.act_order and linear.weight.strategy == "group":
            rounding["actorder"] = "static"
    if options.method == "autoround":
        rounding |= {"kind": "AutoRoundModifier"}
    if options.method.startswith("smoothquant"):
        return [{"kind": "SmoothQuantModifier", "smoothing_strength": options.alpha}, rounding]
    if options.method == "awq":
        return [{"kind": "AWQModifier"}, rounding]
    return [rounding]


def unheeded(options: Options) -> list[str]:
    """What of the recipe has no counterpart here, for the report."""
    if options.scale_search and ("gptq" in options.method or options.method == "awq"):
        return ["scale_search has no effect in llm_compressor: a group's scale follows from its greatest weight"]
    return []


class _Run:
    """One worker: its lines become the job's."""

    def __init__(self, order: Order, made: Made) -> None:
        self._order, self._made = order, made
        self._modules = max(1, len(order.target.modules()) - len(order.kept))
        self._begun: dict[str, None] = {}

    def hear(self, told: dict[str, Any]) -> None:
        if "module" in told:
            self._module(told["module"])
        elif "fallback" in told:
            self._fallback(told["fallback"], told["reason"])
        elif "log" in told:
            self._order.channel.log(told["log"], "warning")
            self._made.notes.append(told["log"])

    def _module(self, name: str) -> None:
        self._begun[name] = None
        share = min(1.0, len(self._begun) / self._modules)
        self._order.say(_READY + (_WRITTEN - _READY) * share, name)

    def _fallback(self, name: str, reason: str) -> None:
        if self._order.options.on_fallback == "fail":
            raise ChildError(
                "quantization_failed",
                f"{name}: {reason}",
                "Calibrate with more text, raise the damping, or set on_fallback to record.",
            )
        self._made.fallbacks.append({"layer": name, "reason": reason})
        self._order.channel.log(f"{name}: {reason}", "warning")
        self._order.channel.metric("fallbacks", len(self._made.fallbacks))


def _finish(order: Order, made: Made) -> None:
    """The tokenizer as the model has it, digests, and the rows of the report from what lies in the files."""
    making = made.folder.path
    config = json.loads((making / "config.json").read_text())
    ignored = set((config.get("quantization_config") or {}).get("ignore", []))
    order.target.write_tokenizer(made.folder)
    for path in sorted(making.iterdir()):
        with path.open("rb") as file:
            made.folder.digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    linear = linear_of(order.options, order.group)
    fell = {each["layer"] for each in made.fallbacks}
    for name in order.target.modules():
        kept = linear is None or name in order.kept or name in ignored
        method = "kept" if kept else "rtn_fallback" if name in fell else order.options.method
        scheme = "16 bits" if kept or linear is None else str(linear.weight)
        made.layers.append({"index": int(re.findall(r"\d+", name)[0]), "name": name, "scheme": scheme,
                            "method": method, "loss": None, "rtn_loss": None, "damping": None, "sqnr_db": None,
                            "note": ""})  # fmt: skip
    for name, tensor in _floats(making):
        if not bool(torch.isfinite(tensor).all()):
            raise ChildError(
                "bad_weights",
                f"{name}: llm-compressor wrote values that are NaN or infinite",
                "Keep this layer in 16 bits (option keep), or choose another scheme.",
            )
        if name.endswith((".k_scale", ".v_scale")):
            layer = re.sub(r"^.*?layers\.(\d+)\..*$", r"layers.\1", name)
            made.kv_scales.setdefault(layer, []).append(float(tensor.max()))


def _floats(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 # safe_open is no mapping
                tensor = file.get_tensor(name)
                if tensor.is_floating_point():
                    yield name, tensor.float()
