"""Who does the work of a quantize job: `native`; `llm_compressor`, `qat` with an environment of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.native.loader.model_files import ModelFiles
from engines.native.vocabulary.folder import Folder
from engines.protocol import Channel
from plugins.quantization.calibration import Calibration
from plugins.quantization.export import Target
from plugins.quantization.spec import Options

Say = Callable[[float, str], None]
"""Share done, 0…1, and what is being done."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a back end is given. kept: modules of the checkpoint that stay in 16 bits. group: of a scheme with groups.
    calibration: None where the recipe needs none. workdir: survives an attempt. staging: has the new version when it is
    whole, and nothing before."""

    options: Options
    files: ModelFiles
    target: Target
    kept: frozenset[str]
    group: int
    calibration: Calibration | None
    workdir: Path
    staging: Path
    channel: Channel
    say: Say


@dataclass(slots=True)
class Made:
    """layers: a row for each product or module, as the report has it. fallbacks: {"layer", "reason"}, what was done
    more simply than asked. kv_scales: layer → [key scale, value scale], greatest of the heads. resumed_at: layers that
    an earlier attempt had finished. mixed: how its plan came about, of a mixed version. training: of a trained one, how
    it went. rules: what the back end itself asks of the version, as gates have them. forget: removes what another
    attempt would go on from; called once the version reads back."""

    folder: Folder
    layers: list[dict[str, Any]] = field(default_factory=list)
    fallbacks: list[dict[str, str]] = field(default_factory=list)
    kv_scales: dict[str, list[float]] = field(default_factory=dict)
    resumed_at: int = 0
    notes: list[str] = field(default_factory=list)
    mixed: dict[str, Any] | None = None
    training: dict[str, Any] | None = None
    rules: list[dict[str, Any]] = field(default_factory=list)
    forget: Callable[[], object] = lambda: None
