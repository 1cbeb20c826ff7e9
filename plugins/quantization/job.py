"""One quantize job: checked, calibrated, quantized layer by layer, written, read back (docs/quantization.md).

    python -m plugins.quantization.job < spec.json

speaks engines.protocol. A killed job goes on at the last finished layer when it is started again with the same spec; a
folder in the place of `staging` is there when it is whole, and not before.
"""

from __future__ import annotations

import importlib
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import psutil
import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer

from engines.api import size_text
from engines.native.loader.model_files import ModelFiles, open_model
from engines.native.loader.tokenizer import TokenizerFacts, load_tokenizer
from engines.native.pooling.config import Task
from engines.native.pooling.task import task_of
from engines.protocol import Channel, ChildError, read_spec
from plugins.quantization import calibration, spec
from plugins.quantization.backends import Made, Order, Say
from plugins.quantization.calibration import Calibration
from plugins.quantization.export import Target, parameters, written_bytes
from plugins.quantization.observe import KEPT_BYTES
from plugins.quantization.sizes import training_files, training_memory
from plugins.quantization.spec import Options, Problem
from plugins.quantization.work import disk_full, is_full

_BEGUN, _DONE = 0.05, 0.98
"""Of the progress: the back end's part lies between."""
_STEP = 0.002
"""Less progress than this is not told."""
_TORCH_BYTES = 700 * 2**20
"""Of a process with torch in it."""
SHOWN = 2000
"""Rows of layers in a report: it travels in events."""


@dataclass(frozen=True, slots=True)
class Input:
    """What the child gets: plugins.api.Optimizer.command. calibration: path, "" = what ships with us."""

    recipe: dict[str, Any]
    paths: dict[str, str]
    format: str
    workdir: str
    staging: str
    calibration: str = ""


def run(given: Input, channel: Channel) -> dict[str, Any]:
    """The report. Raises ChildError."""
    started = time.monotonic()
    options = spec.parse(given.recipe)
    say = _progress(channel)
    files = open_model(given.format, given.paths)
    _check_model(files)
    too_long = spec.context_problem(options, files.config.context_length)
    if too_long is not None:
        raise too_long.error()
    tokenizer, facts = load_tokenizer(files)
    with Target(files, facts, options.dtype) as target:
        kept = spec.kept(options.keep, list(target.modules()), target.modules())
        group = _group(options, target)
        _check_room(options, target, group, given)
        rows = _calibrated(options, given, tokenizer, facts, say, channel)
        order = Order(
            options=options,
            files=files,
            target=target,
            kept=kept,
            group=group,
            calibration=rows,
            workdir=Path(given.workdir),
            staging=Path(given.staging),
            channel=channel,
            say=lambda share, text: say(_BEGUN + (_DONE - _BEGUN) * share, text),
        )
        made: Made = importlib.import_module(f"plugins.quantization.backends.{options.backend}").run(order)
        say(_DONE, "reading the version back")
        sizes = _read_back(made, facts, target)
        made.forget()
    say(1.0, "finished")
    return _report(order, made, sizes, time.monotonic() - started)


# -- before anything is computed ------------------------------------------------------------------------------------


def _check_model(files: ModelFiles) -> None:
    if task_of(files.format, files.paths) is not Task.GENERATE:
        raise ChildError("wrong_task", "model: it makes vectors or scores", "Quantization is for models that generate.")
    if files.format == "safetensors" and files.quant is not None:  # of a GGUF file it says which blocks it has
        raise ChildError(
            "already_quantized",
            "model: it is quantized already, and what its digits lost is not in it any more",
            "Choose the version that it was made of.",
        )


def _group(options: Options, target: Target) -> int:
    """Of a scheme with groups; else 0. Raises ChildError naming the layer that it doesn't divide."""
    if not options.about.grouped:
        return 0
    inputs = {theirs: target.shapes()[f"{ours}.weight"][1] for theirs, ours in target.modules().items()}
    group = options.group_size or spec.group_for(inputs.values())
    for name, size in inputs.items():
        if not group or size % group:
            fits = [each for each in (192, 128, 96, 64, 32, 16) if not any(one % each for one in inputs.values())]
            hint = f"Groups of {', '.join(map(str, fits))} divide all layers." if fits else "Choose fp8 or int8."
            raise Problem("group_size", f"{group or 'no usual group'} does not divide {name}: {size:,} inputs",
                          hint).error()  # fmt: skip
    return group


def _check_room(options: Options, target: Target, group: int, given: Input) -> None:
    """Raises ChildError: disk_full, out_of_memory."""
    made = written_bytes(options, target, group)
    workdir, staging = Path(given.workdir), Path(given.staging).parent
    for folder in (workdir, staging):
        folder.mkdir(parents=True, exist_ok=True)
    sizes, width = {workdir: made, staging: made}, target.torch_dtype.itemsize
    if options.backend == "qat":
        sizes[workdir] += made + training_files(options.qat_train, parameters(target), width)
    elif options.backend == "llm_compressor":  # the model as transformers reads it, beside what is made of it
        sizes = {workdir: 0, staging: made + width * parameters(target)}
    if workdir.stat().st_dev == staging.stat().st_dev:
        sizes = {staging: sum(sizes.values())}
    for folder, needed in sizes.items():
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise ChildError(
                "disk_full",
                f"the job needs {size_text(needed)} at {folder} (what it works with, and the files made of it); "
                f"{size_text(free)} are free",
                "Free some space, or choose a smaller scheme.",
            )
    memory, free = needed_memory(options, target), psutil.virtual_memory().available
    if free < memory:
        raise ChildError(
            "out_of_memory",
            f"the job needs about {size_text(memory)} of memory, and {size_text(free)} are free",
            "Stop an engine on this machine, or take fewer or shorter calibration rows.",
        )


def needed_memory(options: Options, target: Target) -> int:
    """Bytes, about. native: one layer in float32 a few times; with data its largest Hessian, that one's factor, the
    tokens on their way through the layers and what it keeps of them. llm_compressor: on a processor the whole model in
    float32, a Hessian and its factor. qat: as native, or what trains, where that is the processor."""
    every = target.shapes()
    if options.backend == "llm_compressor":
        widest = max(every[f"{ours}.weight"][1] for ours in target.modules().values())
        return _TORCH_BYTES + 4 * parameters(target) + 2 * widest**2 * 4
    if options.backend == "qat" and not torch.cuda.is_available():
        logits = options.qat_rows * options.tokens * target.config.vocab
        training = training_memory(options.qat_train, options.qat_recompute, parameters(target), logits)
        rounding = needed_memory(replace(options, backend="native"), target)
        return max(rounding, _TORCH_BYTES + training)
    shapes = [shape for name, shape in every.items() if name.startswith("layers.0.") and len(shape) == 2]
    layer = sum(rows * columns for rows, columns in shapes) * 4
    table = target.config.vocab * target.config.hidden * 4
    if not options.needs_data:
        return _TORCH_BYTES + 3 * layer + table
    widest = max(columns for _, columns in shapes)
    tokens = options.samples * options.tokens
    streams = 2 * tokens * target.config.hidden * 4
    return _TORCH_BYTES + 4 * layer + table + 3 * widest**2 * 4 + streams + min(KEPT_BYTES, tokens * widest * 4)


def _calibrated(
    options: Options, given: Input, tokenizer: Tokenizer, facts: TokenizerFacts, say: Say, channel: Channel
) -> Calibration | None:
    if not options.needs_data:
        return None
    rows = calibration.load(
        Path(given.calibration) if given.calibration else None,
        tokenizer,
        facts,
        samples=options.samples,
        tokens=options.tokens,
        seed=options.seed,
        progress=lambda share: say(_BEGUN * share, "reading the calibration text"),
    )
    found = rows.facts
    channel.log(
        f"calibration: {found.samples} rows of {found.tokens} tokens from {found.used} of {found.texts} texts "
        f"({found.source}, sha256 {found.sha256[:12]}); BOS {found.bos}"
    )
    for note in found.notes:
        channel.log(f"calibration: {note}", "warning")
    return rows


# -- afterwards -----------------------------------------------------------------------------------------------------


def _read_back(made: Made, facts: TokenizerFacts, target: Target) -> dict[str, int]:
    """File → bytes, once an engine can open them: every tensor in its place, the same special tokens."""
    paths = {name: str(made.folder.path / name) for name in made.folder.digests}
    files = open_model("safetensors", paths)
    _, found = load_tokenizer(files)
    wrong = [
        name
        for name in ("bos_id", "eos_ids", "special_ids", "add_bos", "chat_template")
        if getattr(found, name) != getattr(facts, name)
    ]
    wrong += ["config"] if files.config != target.config else []
    if wrong:
        raise ChildError("not_exportable", f"model: what was written differs from the model in its {', '.join(wrong)}")
    return {name: Path(path).stat().st_size for name, path in paths.items()}


def _report(order: Order, made: Made, sizes: dict[str, int], seconds: float) -> dict[str, Any]:
    options, weights = order.options, (".safetensors", ".gguf")
    before = sum(path.stat().st_size for name, path in order.files.paths.items() if name.endswith(weights))
    return {
        "files": [
            {"name": name, "sha256": digest, "size": sizes[name]} for name, digest in made.folder.digests.items()
        ],
        "format": "safetensors",
        "scheme": options.scheme,
        "algorithm": options.method,
        "backend": options.backend,
        "group_size": order.group,
        "dtype": order.target.dtype,
        "recipe": msgspec.to_builtins(options),
        "size": {"before": before, "after": sum(size for name, size in sizes.items() if name.endswith(weights))},
        "layers": made.layers[:SHOWN],
        "layers_total": len(made.layers),
        "layers_by_scheme": dict(Counter(row["scheme"] for row in made.layers)),
        "fallbacks": made.fallbacks,
        "kept": sorted(order.kept),
        "mixed": made.mixed,
        "training": made.training,
        "rules": made.rules,
        "kv": {"format": options.kv_format, "scales": made.kv_scales},
        "embedding": options.embedding_format,
        "serve_options": _serve_options(options),
        "calibration": order.calibration.facts.about() if order.calibration else None,
        "resumed_at": made.resumed_at,
        "notes": made.notes,
        "seconds": round(seconds, 2),
        "peak_memory": peak_memory(),
    }


def peak_memory() -> int:
    """Bytes, of this process or the largest that it started: llm-compressor works in one."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) * 1024


def _serve_options(options: Options) -> dict[str, Any]:
    """Options of the native engine that the version is meant to be served with, beyond what its files say."""
    return {"kv_cache_dtype": "int8"} if options.kv_format == "int8" else {}


# -- the child ------------------------------------------------------------------------------------------------------


def _progress(channel: Channel) -> Say:
    told, last = -1.0, ""

    def say(share: float, text: str) -> None:
        nonlocal told, last
        if share - told >= _STEP or text != last or share >= 1:
            told, last = max(told, share), text
            channel.progress(told, text)

    return say


def _ended(*_: object) -> NoReturn:
    """A cancel: what is half written is swept on the way out."""
    raise SystemExit(143)


def main() -> int:
    channel = Channel()
    signal.signal(signal.SIGTERM, _ended)
    try:
        given = read_spec()
        given.pop("v", None)
        try:
            order = msgspec.convert(given, Input, strict=True)
        except msgspec.ValidationError as error:
            raise ChildError("bad_spec", f"the spec is no spec of this job: {error}") from error
        report = run(order, channel)
        channel.report(report, "ok" if all(rule["passed"] for rule in report["rules"]) else "failed")
    except ChildError as error:
        channel.error(error.code, error.message, error.hint)
        return 1
    except (OSError, SafetensorError) as error:
        if not is_full(error):
            raise
        full = disk_full(Path(getattr(error, "filename", None) or order.workdir))
        channel.error(full.code, full.message, full.hint)
        return 1
    except MemoryError:
        channel.error(
            "out_of_memory", "the job ran out of memory", "Take fewer or shorter calibration rows, or a larger machine."
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
