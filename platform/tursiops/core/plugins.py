"""Loads plugins at start, ours and those of others. One that fails is listed with its traceback and stops nothing."""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

import jsonschema
from django.conf import settings

from plugins.api import BUILT_IN, Plugin, PluginError, load
from tursiops.core.registry import Points, points

GROUP = "tursiops.plugins"


@dataclass(frozen=True)
class Status:
    """One plugin as the console lists it."""

    name: str
    origin: str  # distribution and version that ships the entry point
    state: Literal["active", "failed"]
    version: str = ""
    label: str = ""
    contributes: dict[str, list[str]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    settings_schema: dict[str, Any] = field(default_factory=dict)
    error: str = ""  # one sentence
    traceback: str = ""


_loaded: list[Status] = []


def loaded() -> list[Status]:
    """Every plugin that was found at start, working or not."""
    return list(_loaded)


def load_installed() -> None:
    """Called once, by core's `ready()`."""
    _loaded[:] = load_all(points)


def load_all(into: Points) -> list[Status]:
    """Register the contributions of each plugin, ours first, with `into`; a status for each."""
    values = _settings_file(Path(settings.DATA_DIR) / "plugins.json")
    ours = [EntryPoint(name, value, GROUP) for name, value in BUILT_IN.items()]
    installed = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    found = [*ours, *installed]
    return [_load(point, into, values.get(point.name, {})) for point in found]


def _load(point: EntryPoint, into: Points, values: dict[str, Any]) -> Status:
    origin = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
    registrant = f"plugin {point.name} ({origin})"
    try:
        plugin = point.load()
        if not isinstance(plugin, Plugin):
            raise PluginError(f"{point.value} is {type(plugin).__name__}, expected plugins.api.Plugin")
        plugin.check()
        effective = _checked_settings(plugin, values)
        for name, items in plugin.contributes.items():
            for item_name, path in items.items():
                item = load(path)
                into[name].register(item_name, partial(_same, item) if name == "engines" else item, origin=registrant)
    except Exception as error:  # whatever a stranger's package does while it is imported
        for each in into:
            each.discard_origin(registrant)
        return Status(point.name, origin, "failed", error=str(error), traceback=traceback.format_exc())
    return Status(
        plugin.name,
        origin,
        "active",
        version=plugin.version,
        label=plugin.label or plugin.name,
        contributes={name: sorted(items) for name, items in plugin.contributes.items()},
        settings=effective,
        settings_schema=plugin.settings_schema,
    )


def _same(item: Any) -> Any:
    return item


def _checked_settings(plugin: Plugin, values: dict[str, Any]) -> dict[str, Any]:
    effective = {**plugin.default_settings, **values}
    try:
        jsonschema.validate(effective, plugin.settings_schema or {})
    except jsonschema.ValidationError as error:
        where = ".".join(map(str, error.absolute_path)) or "settings"
        raise PluginError(f"{plugin.name}: {where}: {error.message} (plugins.json in the data folder)") from error
    return effective


def _settings_file(path: Path) -> dict[str, Any]:
    """{plugin name: {setting: value}}; empty where there is no such file. Raises PluginError if it isn't JSON."""
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise PluginError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict) or not all(isinstance(item, dict) for item in values.values()):
        raise PluginError(f"{path} must be an object of objects: {{plugin name: {{setting: value}}}}")
    return values
