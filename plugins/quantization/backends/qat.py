"""Quantization-aware training: begins with what `native` rounds, trains it to answer as the model itself does, and
writes the same kind of folder. torchao's fake quantizers, transformers' Trainer, peft, in an environment of their own.

The version is measured as it lies on disk: the model, the rounded and the trained version on rows that nothing has
seen. Less than LEAST_RECOVERY of the gap, and the job ends rejected.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from engines.native.quant.weight import QuantizedWeight, pack_nibbles, unpack_nibbles
from engines.native.vocabulary.folder import Folder
from engines.protocol import ChildError
from plugins.quantization.backends import Made, Order
from plugins.quantization.backends.native import FALLBACK, plan_of, recipe_of, rounded, tell_layer
from plugins.quantization.backends.worker import Work, follow
from plugins.quantization.calibration import Calibration
from plugins.quantization.environments import Environment, ensure, pins_of
from plugins.quantization.export import assemble, parameters, write_unquantized
from plugins.quantization.gap import Gap, perplexity, require, split
from plugins.quantization.simulate import text_losses
from plugins.quantization.sizes import training_files
from plugins.quantization.terms import LayerResult
from plugins.quantization.work import WorkFolder, writing

ENVIRONMENT = Environment(
    "qat", pins_of(Path(__file__).with_name("qat.txt")), ("torchao.quantization.qat", "peft", "accelerate"), 2**30
)
_WORKER = Path(__file__).with_name("qat_worker.py")
_MADE, _ROUNDED, _READY, _TRAINED, _CONVERTED = 0.05, 0.3, 0.4, 0.92, 0.97
"""Of the progress: environment, rounding, its gap; training; the trained version's gap; then the files."""


def run(order: Order) -> Made:
    """Raises ChildError."""
    if order.calibration is None:
        raise ChildError("bad_recipe", "backend: qat needs calibration rows", "Give a calibration file.")
    order, held, texts = _split(order, order.calibration)
    python = ensure(ENVIRONMENT, lambda share, text: order.say(_MADE * share, text))
    recipe = recipe_of(order)
    start, resumed = rounded(order, recipe, lambda share, text: order.say(_MADE + (_ROUNDED - _MADE) * share, text))
    place = _place(order)
    layers = range(order.target.config.layers)
    before = _gap_before(order, start, place, held)
    training = _Training(order)
    files = training_files(order.options.qat_train, parameters(order.target), order.target.torch_dtype.itemsize)
    hint = "Free some space and start the job again: it goes on at the last checkpoint."
    work = Work("training", place, files, hint)
    follow(python, _WORKER, _spec(order, start, place), training.hear, work)
    done = _converted(order, start, place)
    order.say(_TRAINED, "training is done: measuring on the held-out rows")
    gap = Gap(*before, _perplexity(order, (done.finished(index) for index in layers), held, "the trained version"),
              held[:, 1:].numel(), texts)  # fmt: skip
    order.channel.metric("gap_recovery", gap.recovery)
    told = (
        f"training closed {gap.recovery:.1%} of the gap: perplexity {gap.model:.4g} of the model, {gap.rounded:.4g} "
        f"rounded, {gap.trained:.4g} trained, on {gap.tokens:,} tokens of "
        f"{gap.texts:,} texts that were held out"
    )
    order.channel.log(told)
    folder = assemble(
        order.target, done, order.staging, None,
        lambda share: order.say(_CONVERTED + (1 - _CONVERTED) * share, "writing the files"),
    )  # fmt: skip

    def forget() -> None:
        for each in (start, done):
            each.remove()
        shutil.rmtree(place, ignore_errors=True)

    made = Made(folder, resumed_at=resumed, notes=[*training.notes, told], rules=[gap.rule()], forget=forget)
    made.training = {**training.about(), "gap": gap.about()}
    for index in layers:
        tell_layer(made, index, done, recipe)
    return made


# -- rows -----------------------------------------------------------------------------------------------------------


def _split(order: Order, calibration: Calibration) -> tuple[Order, torch.Tensor, int]:
    """The order with the rows that are trained on; those that are measured by, and how many texts these are of. Raises
    ChildError where there are too few."""
    rows = calibration.rows
    found = split(calibration.texts, rows.shape[1])
    batch = order.options.qat_rows
    if batch > found.trained:
        raise ChildError(
            "bad_recipe",
            f"qat_rows: it is {batch}, and {found.trained} rows are trained on: the text has no more",
            "Take fewer, or give more text.",
        )
    trained = replace(calibration, rows=rows[: found.trained], texts=calibration.texts[: found.trained])
    return replace(order, calibration=trained), torch.from_numpy(rows[found.measured :]).long(), found.texts


# -- the gap --------------------------------------------------------------------------------------------------------


def _gap_before(order: Order, start: WorkFolder, place: Path, held: torch.Tensor) -> tuple[float, float]:
    """Perplexity of the model and of what rounding made of it. Raises ChildError where they don't differ."""
    kept = place / "before.json"
    if not kept.is_file():
        layers = range(order.target.config.layers)
        order.say(_ROUNDED, "measuring the model on the held-out rows")
        model = _perplexity(order, (LayerResult(index, {}, {}, None, ()) for index in layers), held, "the model")
        order.say((_ROUNDED + _READY) / 2, "measuring the rounded version on the held-out rows")
        less = _perplexity(order, (start.finished(index) for index in layers), held, "the rounded version")
        part = kept.with_suffix(".part")
        part.write_text(json.dumps([model, less]))
        part.replace(kept)  # whole or not at all
    model, less = json.loads(kept.read_text())
    require(model, less)
    return model, less


def _perplexity(order: Order, layers: Iterable[LayerResult], ids: torch.Tensor, what: str) -> float:
    return perplexity(float(text_losses(order.files, layers, ids).mean()), what)


# -- the worker -----------------------------------------------------------------------------------------------------


def _place(order: Order) -> Path:
    """Of this plan alone: another one's checkpoints are thrown away."""
    place, plan = order.workdir / "qat", plan_of(order)
    told = place / "plan"
    if not told.is_file() or told.read_text() != plan:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        told.write_text(plan)
    return place


def _spec(order: Order, start: WorkFolder, place: Path) -> dict[str, Any]:
    """What the worker is told; model, start and rows lie in `place`."""
    options, recipe = order.options, recipe_of(order)
    assert order.calibration is not None
    assert recipe.linear is not None
    if not (place / "ready").is_file():
        shutil.rmtree(place / "model", ignore_errors=True)
        (place / "model").mkdir()
        write_unquantized(
            order.target, Folder(place / "model"), lambda share: order.say(_READY, "writing the model for transformers")
        )
        tensors = _tensors(order, start)
        with writing(place / "start.safetensors", sum(tensor.nbytes for tensor in tensors.values())):
            save_file(tensors, place / "start.safetensors")
        with writing(place / "rows.npy", order.calibration.rows.nbytes):
            np.save(place / "rows.npy", order.calibration.rows)
        (place / "ready").touch()
    weight = recipe.linear.weight
    return {
        "model": str(place / "model"),
        "start": str(place / "start.safetensors"),
        "data": str(place / "rows.npy"),
        "work": str(place / "checkpoints"),
        "output": str(place / "trained.safetensors"),
        "norms": [order.target.theirs(name) for name, shape in order.target.shapes().items() if _is_norm(name, shape)],
        "group": weight.group,
        "symmetric": weight.symmetric,
        "scale_dtype": str(recipe.scale_dtype).removeprefix("torch."),
        # What smoothing widened is no measure; and GPTQ's codes make up for each other: they are not to fall back.
        "centred": bool(recipe.smoothing) or recipe.rounding == "gptq",
        "seed": options.seed,
        **{name: getattr(options, f"qat_{name}") for name in TOLD},
    }


TOLD = ("train", "steps", "rows", "learning_rate", "rank", "temperature", "hidden", "precision", "recompute")
"""Options that the worker gets as they are."""


def _is_norm(name: str, shape: tuple[int, ...]) -> bool:
    return name.startswith("layers.") and len(shape) == 1 and name.endswith("norm.weight")


def _tensors(order: Order, start: WorkFolder) -> dict[str, torch.Tensor]:
    """Of the rounded version, by the checkpoint's names: codes int8 [out, in], scale float32 and zero int8 [out,
    groups] of each matrix, and what stays in floating point where it was changed."""
    found: dict[str, torch.Tensor] = {}
    for index in range(order.target.config.layers):
        layer = start.finished(index)
        for name, weight in layer.linears.items():
            module = order.target.theirs(f"{name}.weight").removesuffix(".weight")
            codes = unpack_nibbles(weight.values, weight.shape[1]).to(torch.int8)
            zero = weight.zeros
            found[f"{module}.codes"] = codes if zero is not None else codes - 8
            found[f"{module}.scale"] = weight.scales.float().contiguous()
            found[f"{module}.zero"] = (torch.zeros_like(weight.scales) if zero is None else zero).to(torch.int8)
        found |= {order.target.theirs(name): tensor.float() for name, tensor in layer.floats.items()}
    return found


class _Training:
    """What the worker says of its steps."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._about: dict[str, Any] = {"resumed_at_step": 0}
        self.notes: list[str] = []
        self._began = time.monotonic()

    def hear(self, told: dict[str, Any]) -> None:
        order = self._order
        if "loading" in told:
            order.say(_READY, "training: loading the model")
        elif "step" in told:
            step, steps, loss = told["step"], told["steps"], told["loss"]
            self._about.setdefault("first_loss", loss)
            self._about["last_loss"] = loss
            order.channel.metric("train_loss", loss, step=step)
            share = _READY + (_TRAINED - _READY) * step / steps
            order.say(share, f"training: step {step} of {steps}, loss {loss:.4f}")
        elif "resumed" in told:
            self._about["resumed_at_step"] = told["resumed"]
            order.channel.log(f"training goes on after step {told['resumed']}, which an earlier attempt had reached")
        elif "log" in told:
            order.channel.log(told["log"], "warning")
            self.notes.append(told["log"])
        elif "done" in told:
            self._about |= told["about"]

    def about(self) -> dict[str, Any]:
        options = self._order.options
        chosen = {name: getattr(options, f"qat_{name}") for name in TOLD}
        return {**chosen, **self._about, "seconds": round(time.monotonic() - self._began, 1)}


# -- back again -----------------------------------------------------------------------------------------------------


def _converted(order: Order, start: WorkFolder, place: Path) -> WorkFolder:
    """The rounded layers with the trained codes, scales and norms, in a work folder of their own."""
    target = order.target
    done = WorkFolder(order.workdir / "trained", f"{plan_of(order)} trained", target.config.architecture)
    norms = {target.theirs(name): name for name, shape in target.shapes().items() if _is_norm(name, shape)}
    with safe_open(place / "trained.safetensors", "pt") as file:
        names = set(file.keys())
        for index in range(target.config.layers):
            layer = start.finished(index)
            linears = {}
            for name, weight in layer.linears.items():
                module = target.theirs(f"{name}.weight").removesuffix(".weight")
                linears[name] = _trained(weight, file.get_tensor(f"{module}.codes"), file.get_tensor(f"{module}.scale"))
            prefix = f"layers.{index}."
            floats = {ours: file.get_tensor(theirs) for theirs, ours in norms.items()
                      if theirs in names and ours.startswith(prefix)}  # fmt: skip
            reports = tuple(
                report if report.method in ("kept", FALLBACK)
                else replace(report, method=f"{report.method}, qat", loss=None, rtn_loss=None, sqnr_db=None)
                for report in layer.reports
            )  # fmt: skip
            done.take(replace(layer, linears=linears, floats={**layer.floats, **floats}, reports=reports))
    return done


def _trained(weight: QuantizedWeight, codes: torch.Tensor, scale: torch.Tensor) -> QuantizedWeight:
    """codes: int8 [out, in], 0 … 15 where there are zeros, else -8 … 7. scale: float32 [out, groups], of values that
    the file's type holds."""
    least = -8 if weight.zeros is None else 0
    return replace(weight, values=pack_nibbles(codes - least), scales=scale.to(weight.scales.dtype))
