"""The built-in back end: plain torch, layer by layer, nothing to install."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from engines.native.quant.scheme import ActivationScheme, KvScheme, LinearScheme, WeightScheme
from engines.protocol import ChildError
from plugins.quantization.backends import Made, Order, Say
from plugins.quantization.backends.native_mixed import planned
from plugins.quantization.export import assemble
from plugins.quantization.recipe import LayerResult, QuantizationFailed, Recipe, quantize
from plugins.quantization.spec import Options
from plugins.quantization.terms import GroupReport
from plugins.quantization.work import WorkFolder

_LAYERS = 0.93  # of the progress; the rest is writing the files
_PLANNED = 0.4  # of mixed precision: what measuring takes
_GROUP_OF = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"}
FALLBACK = "rtn_fallback"


def run(order: Order) -> Made:
    """Raises ChildError."""
    recipe, begun = recipe_of(order), 0.0
    about: dict[str, Any] = {}
    if order.options.scheme == "mixed":
        begun = _PLANNED
        with failing():
            plan = plan_of(order)
            recipe, about = planned(order, recipe, plan, lambda share, text: order.say(_PLANNED * share, text))
    done, start = rounded(order, recipe, lambda share, text: order.say(begun + (_LAYERS - begun) * share, text))
    folder = assemble(
        order.target,
        done,
        order.staging,
        recipe.kv if recipe.kv and recipe.kv.kind == "float" else None,  # int8 finds its scales while it runs
        lambda share: order.say(_LAYERS + (1 - _LAYERS) * share, "writing the files"),
    )
    made = Made(folder, resumed_at=start, mixed=about or None, forget=done.remove)
    for index in range(order.target.config.layers):
        tell_layer(made, index, done, recipe)
    return made


def rounded(order: Order, recipe: Recipe, say: Say) -> tuple[WorkFolder, int]:
    """All layers, in the work folder, and how many of them an earlier attempt had finished. Raises ChildError."""
    config = order.target.config
    layers = config.layers
    done = WorkFolder(order.workdir / "layers", plan_of(order), config.architecture, _Teller(order, layers))
    start = min(done.done(), layers)
    if start:
        order.channel.log(f"going on after layer {start} of {layers}, which an earlier attempt had finished")
    order.channel.metric("resumed_at", start)
    if start == layers and not recipe.embedding:
        return done, start
    ids = None if order.calibration is None else torch.from_numpy(order.calibration.rows).long()
    with failing():
        quantize(order.files, recipe, ids, done, say, start)
    return done, start


@contextmanager
def failing() -> Iterator[None]:
    """What an algorithm refuses, as the job's error."""
    try:
        yield
    except QuantizationFailed as error:
        message, _, hint = str(error).partition("; ")
        raise ChildError("quantization_failed", message, hint[:1].upper() + hint[1:]) from error


def recipe_of(order: Order) -> Recipe:
    """What the algorithms are told."""
    options = order.options
    linear = linear_of(options, order.group)
    return Recipe(
        linear=linear,
        rounding="gptq" if "gptq" in options.method else "rtn",
        smoothing=_smoothing(options.method),
        clip=options.scale_search
        and ("gptq" in options.method or options.method == "awq"),  # 38.5 → 35.2 of float's 30.4 (SmolLM2, int4 g64)
        alpha=options.alpha,
        damping=options.damping,
        on_fallback="fail" if options.on_fallback == "fail" else "record",
        keep=kept_groups(order),
        kv={"fp8": KvScheme("float"), "int8": KvScheme("int")}.get(options.kv_format),
        embedding=options.embedding_format == "int8",
        scale_dtype=scale_dtype_of(order.target.torch_dtype),
    )


def scale_dtype_of(dtype: torch.dtype) -> torch.dtype:
    """Of the scales beside weights of `dtype`. float16 has no room below 6e-8 and few digits below 6e-5, where small
    outputs have their scales: these are float32, which readers cast as they need."""
    return torch.float32 if dtype == torch.float16 else dtype


def _smoothing(method: str) -> Any:
    return "awq" if method == "awq" else "smoothquant" if method.startswith("smoothquant") else ""


def linear_of(options: Options, group: int) -> LinearScheme | None:
    """What a scheme means for a matrix; None: it leaves weights alone."""
    per_token_fp8 = ActivationScheme("float", 8, True, "token")
    static = "static" if options.act_order and "gptq" in options.method else ""
    return {
        "fp8_dynamic": LinearScheme(WeightScheme("float", 8, "channel"), per_token_fp8),
        "fp8_static": LinearScheme(WeightScheme("float", 8, "channel"), ActivationScheme("float", 8, False, "tensor")),
        "fp8_block": LinearScheme(
            WeightScheme("float", 8, "block", block=(128, 128)), ActivationScheme("float", 8, True, "group", 128)
        ),
        "int8_w8a8": LinearScheme(WeightScheme("int", 8, "channel"), ActivationScheme("int", 8, True, "token")),
        "w4a16_gptq": LinearScheme(WeightScheme("int", 4, "group", group, actorder=static)),
        "w4a16_awq": LinearScheme(WeightScheme("int", 4, "group", group, symmetric=False)),
        "mixed": LinearScheme(WeightScheme("int", 4, "group", group, actorder=static)),
        "int8_weight_only": LinearScheme(WeightScheme("int", 8, "channel")),
    }.get(options.scheme)


def kept_groups(order: Order) -> tuple[str, ...]:
    """Products that stay in 16 bits: those of which any part is to."""
    found = set()
    for theirs, ours in order.target.modules().items():
        if theirs in order.kept:
            layers, index, part = ours.split(".")
            found.add(f"{layers}.{index}.{_GROUP_OF.get(part, part)}")
    return tuple(sorted(found))


def plan_of(order: Order) -> str:
    """Names the work: the same files, recipe and rows."""
    paths = sorted((name, str(Path(path).resolve()), Path(path).stat().st_size) for name, path in
                   order.files.paths.items())  # fmt: skip
    rows = order.calibration.facts.rows_sha256 if order.calibration else ""
    told = json.dumps([paths, repr(order.options), order.group, order.target.dtype, rows])
    return hashlib.sha256(told.encode()).hexdigest()


class _Teller:
    """Says of each finished layer what became of it."""

    def __init__(self, order: Order, layers: int) -> None:
        self._channel, self._layers, self._fallbacks = order.channel, layers, 0

    def __call__(self, layer: LayerResult) -> None:
        losses = [report.loss for report in layer.reports if report.loss is not None]
        fallbacks = [report.group for report in layer.reports if report.method == FALLBACK]
        self._fallbacks += len(fallbacks)
        self._channel.metric("layers_done", layer.index + 1)
        if losses:
            self._channel.metric("layer_loss", sum(losses) / len(losses), step=layer.index)
        noise = [report.sqnr_db for report in layer.reports if report.sqnr_db is not None]
        if noise:
            self._channel.metric("layer_sqnr_db", sum(noise) / len(noise), step=layer.index)
        text = ", ".join(f"{report.group} {_said(report)}" for report in layer.reports)
        self._channel.log(f"layer {layer.index + 1} of {self._layers}: {text}")
        for report in layer.reports:
            if report.method == FALLBACK:
                self._channel.log(f"layers.{layer.index}.{report.group}: {report.note}: rounded to nearest", "warning")
        if fallbacks:
            self._channel.metric("fallbacks", self._fallbacks)


def _said(report: GroupReport) -> str:
    return report.method if report.loss is None else f"{report.method} loss {report.loss:.2e}"


def tell_layer(made: Made, index: int, done: WorkFolder, recipe: Recipe) -> None:
    found = done.read(index)
    for report in found.reports:
        scheme = recipe.of(index, report.group)
        made.layers.append(
            {
                "index": index,
                "name": f"layers.{index}.{report.group}",
                "scheme": "16 bits" if scheme is None else str(scheme.weight),
                "method": report.method,
                "loss": report.loss,
                "rtn_loss": report.rtn_loss,
                "damping": report.damping,
                "sqnr_db": report.sqnr_db,
                "note": report.note,
            }
        )
        if report.method == FALLBACK:
            made.fallbacks.append({"layer": f"layers.{index}.{report.group}", "reason": report.note})
    if found.kv_scales is not None:
        made.kv_scales[f"layers.{index}"] = [max(scales) for scales in found.kv_scales]
