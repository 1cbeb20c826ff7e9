"""Child process that compares two versions layer by layer (docs/contracts.md §8).

python -m engines.native.compare_job     spec on stdin, progress, then a report or an error on stdout

spec: {"reference": {"format", "paths": {name: path}, "dtype"}, "other": the same, "device", "text"}. The report has the
fields of `compare.Comparison`; a number that is none (NaN, infinite) is null.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import psutil

from engines.api import size_text
from engines.native.compare import Compared, config_of, run
from engines.native.config import ConfigError
from engines.native.loader.model_files import open_model
from engines.native.sizes import device_of, sizes_of
from engines.protocol import Channel, ChildError, read_spec


def compare_of(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """The report. Raises ChildError."""
    try:
        reference, other = (Compared(**spec[name]) for name in ("reference", "other"))
        device, text = str(spec.get("device") or "cpu"), str(spec.get("text") or "")
    except (KeyError, TypeError) as error:
        raise ChildError(
            "bad_spec", f"the spec needs 'reference' and 'other' with format, paths, dtype: {error}"
        ) from None
    try:
        for name, model in (("the reference", reference), ("the other version", other)):
            require_room(name, model, device)
        found = run(reference, other, device=device, text=text, progress=channel.progress)
    except (ConfigError, ValueError) as error:
        raise ChildError("cannot_compare", str(error)) from error
    return {name: plain(value) for name, value in asdict(found).items()}


def require_room(name: str, model: Compared, device: str, options: Mapping[str, Any] | None = None) -> None:
    """Raises ChildError where the model does not fit in this host's memory: the kernel would end us without a word.
    options: of the engine, beyond its defaults; they may dequantize the weights."""
    config = replace(config_of(model, device), **(options or {}))
    on = device_of(config)
    if on.type != "cpu":
        return  # a GPU says so itself
    files = open_model(model.format, model.paths)
    kv = files.quant.kv if files.quant else None
    need = sizes_of(files.config, config, on, files.quantized_size(on.type), kv).plan.total
    free = psutil.virtual_memory().available
    if need > free:
        raise ChildError(
            "too_large",
            f"{name} needs {size_text(need)} in {model.dtype} and {size_text(free)} are free on this node",
            "Compare it in a smaller dtype, stop an engine on this node, or compare on a larger one.",
        )


def plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> int:
    channel = Channel()
    try:
        channel.report(compare_of(read_spec(), channel))
    except ChildError as error:
        channel.error(error.code, error.message, error.hint)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
