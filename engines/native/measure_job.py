"""Child process that measures one version on this machine (docs/contracts.md §8).

python -m engines.native.measure_job     spec on stdin, progress, then a report or an error on stdout

spec: {"model": {"format", "paths": {name: path}, "dtype"}, "device", "text": path of the text, "options": of the
engine, "keep": path that log-probabilities go to, or "", "reference": path of another version's, or ""}. A dtype of ""
is the device's floating one, since "auto" quantizes on a CPU. The report has the fields of `measure.Measured`; a number
that is none (NaN, infinite) is null.
"""

from __future__ import annotations

import errno
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from engines.native.compare import Compared, config_of
from engines.native.compare_job import plain, require_room
from engines.native.config import ConfigError
from engines.native.measure import measure
from engines.native.sizes import device_of
from engines.protocol import Channel, ChildError, read_spec


def measured(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """The report. Raises ChildError."""
    try:
        model, device = Compared(**spec["model"]), str(spec.get("device") or "cpu")
        text = Path(spec["text"]).read_text(encoding="utf-8")
    except (KeyError, TypeError, OSError) as error:
        raise ChildError("bad_spec", f"the spec needs 'model' with format, paths, dtype, and 'text': {error}") from None
    keep, reference = (Path(spec[name]) if spec.get(name) else None for name in ("keep", "reference"))
    try:
        if not model.dtype:
            on = device_of(config_of(replace(model, dtype="auto"), device))
            model = replace(model, dtype="float32" if on.type == "cpu" else "bfloat16")
        require_room("the version", model, device, spec.get("options"))
        found = measure(
            model,
            device=device,
            text=text,
            options=spec.get("options"),
            keep=keep,
            reference=reference,
            progress=channel.progress,
        )
    except (ConfigError, ValueError, TypeError) as error:
        raise ChildError("cannot_measure", str(error)) from error
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise ChildError("disk_full", "no space left for the log-probabilities", "Free some space.") from error
    told: dict[str, Any] = plain(asdict(found))
    return told


def main() -> int:
    channel = Channel()
    try:
        channel.report(measured(read_spec(), channel))
    except ChildError as error:
        channel.error(error.code, error.message, error.hint)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
