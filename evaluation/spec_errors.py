"""Reading a RunSpec from JSON, with errors that name the path, the reason and the fix."""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from typing import Any
from urllib.parse import urlsplit

import msgspec

from evaluation.scenarios import SCENARIOS
from evaluation.schema import Concurrency, Endpoint, Length, Objective, Rate, RunSpec, Search, Sweep, Trace

_AT = re.compile(r"^(?P<reason>.*) - at `(?P<path>[^`]*)`$", re.DOTALL)
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")
_MISSING = re.compile(r"missing required field `(?P<name>[^`]*)`")


class SpecError(ValueError):
    """`path` as in `$.load.rate`, `reason`, and `fix`: what to write instead."""

    code = "invalid_spec"

    def __init__(self, path: str, reason: str, fix: str = "") -> None:
        super().__init__(f"{path}: {reason}" + (f". {fix}" if fix else ""))
        self.path = path
        self.reason = reason
        self.fix = fix


def read_spec(data: bytes | str | dict[str, Any]) -> RunSpec:
    """Raises SpecError."""
    try:
        raw = data if isinstance(data, dict) else json.loads(data)
    except ValueError as error:
        raise SpecError("$", f"this is not JSON: {error}", "Write the run as one JSON object") from error
    try:
        spec = msgspec.convert(raw, RunSpec)
    except msgspec.ValidationError as error:
        raise explain(str(error), raw) from error
    check(spec)
    return spec


def check(spec: RunSpec) -> None:
    """What single fields can't say. Raises SpecError."""
    check_endpoint("$.endpoint", spec.endpoint)
    if spec.scenario and spec.scenario not in SCENARIOS:
        raise SpecError("$.scenario", f"unknown scenario '{spec.scenario}'", f"Known: {', '.join(SCENARIOS)}")
    load = spec.load
    if isinstance(load, Rate) and load.rate is None and load.arrivals != "trace":
        raise SpecError("$.load.rate", f"arrivals '{load.arrivals}' need a rate", "Give requests per second, as 2.5")
    if not isinstance(load, Concurrency) and load.arrivals == "trace":
        if not isinstance(spec.dataset, Trace):
            raise SpecError("$.load.arrivals", "'trace' takes its times from a data set of kind 'trace'")
        if not isinstance(load, Rate):
            raise SpecError("$.load.arrivals", "a trace has its own rate", "Use load kind 'rate' without `rate`")
    if isinstance(load, Search):
        if not spec.slo and not spec.scenario:
            raise SpecError("$.slo", "a search needs an objective", "Add one: {metric: e2el, quantile, limit_ms}")
        if load.high is not None and load.high < load.low:
            raise SpecError("$.load.high", f"{load.high:g} is below low = {load.low:g}")
    if isinstance(load, Sweep) and sorted(load.rates) != load.rates:
        raise SpecError("$.load.rates", "a sweep goes upwards", "Sort the rates")
    if spec.steady.max_s < spec.steady.min_s:
        raise SpecError("$.steady.max_s", f"{spec.steady.max_s:g} is below min_s = {spec.steady.min_s:g}")
    for index, objective in enumerate(spec.slo):
        _check_objective(f"$.slo[{index}]", objective, closed=isinstance(load, Concurrency))
    for name in ("prompt", "output", "turns"):
        length = getattr(spec.dataset, name, None)
        if isinstance(length, Length):
            _check_length(f"$.dataset.{name}", length)


def check_endpoint(path: str, endpoint: Endpoint) -> None:
    """A spec is stored and shown, so its URLs hold no secrets. Raises SpecError, which does not repeat the URL."""
    for name in ("url", "metrics_url"):
        try:
            parts = urlsplit(getattr(endpoint, name))
            parts.port  # noqa: B018  # it is read for what it raises
        except ValueError:
            raise SpecError(f"{path}.{name}", "is no URL", "Write it as http://host:8000") from None
        if "@" in parts.netloc:
            fix = "Leave them out, and name the environment variable that holds the key in api_key_env"
            raise SpecError(f"{path}.{name}", "holds a user name or password", fix)


def _check_objective(path: str, objective: Objective, *, closed: bool) -> None:
    if closed and objective.start == "intended" and objective.metric in ("ttft", "e2el"):
        raise SpecError(f"{path}.start", "a closed loop has no intended start", "Set 'actual', or load a rate")


def _check_length(path: str, length: Length) -> None:
    if length.high is not None and length.high < length.low:
        raise SpecError(f"{path}.high", f"{length.high} is below low = {length.low}")
    if length.distribution == "histogram":
        if not length.values or len(length.weights) not in (0, len(length.values)):
            raise SpecError(f"{path}.values", "a histogram needs values, and as many weights or none")
        if length.weights and sum(length.weights) <= 0:
            raise SpecError(f"{path}.weights", "the weights sum to 0")


def explain(message: str, raw: Any, root: type[msgspec.Struct] = RunSpec) -> SpecError:
    """What msgspec says of `raw`, which was to be a `root`, with the fix."""
    found = _AT.match(message)
    reason, path = (found["reason"], found["path"]) if found else (message, "$")
    if unknown := _UNKNOWN.search(reason):
        known = _fields_at(path, raw, root)
        close = difflib.get_close_matches(unknown["name"], known, n=1)
        fix = f"Did you mean `{close[0]}`?" if close else f"Known here: {', '.join(known)}" if known else ""
        return SpecError(f"{path}.{unknown['name']}", "unknown field", fix)
    if missing := _MISSING.search(reason):
        return SpecError(f"{path}.{missing['name']}", "is missing", "Add it")
    kinds = _kinds_at(path.removesuffix(".kind"), raw, root) if path.endswith(".kind") else []
    fix = f"Known here: {', '.join(kinds)}" if kinds else ""
    return SpecError(path, reason[:1].lower() + reason[1:], fix)


def _kinds_at(path: str, raw: Any, root: type[msgspec.Struct]) -> list[str]:
    found = re.match(r"(.*)\.(\w+)((?:\[[^]]*\])*)$", path)
    holder = _type_at(found[1], raw, root) if found else None
    kind = typing.get_type_hints(holder).get(found[2]) if found and holder else None
    while kind is not None and typing.get_origin(kind) is list:  # of a list of a union
        kind = typing.get_args(kind)[0]
    return [str(one.__struct_config__.tag) for one in typing.get_args(kind) if hasattr(one, "__struct_config__")]


def _fields_at(path: str, raw: Any, root: type[msgspec.Struct]) -> list[str]:
    current = _type_at(path, raw, root)
    if current is None:
        return []
    config = current.__struct_config__
    tag = [str(config.tag_field)] if config.tag_field else []
    return [*tag, *(str(name) for name in current.__struct_encode_fields__)]


def _type_at(path: str, raw: Any, root: type[msgspec.Struct]) -> type[msgspec.Struct] | None:
    """The struct at a path of a spec."""
    current: Any = root
    value = raw
    for part in re.findall(r"\.([A-Za-z_]\w*)|\[(\d+|\.\.\.)\]", path):
        name, index = part
        if name:
            current = typing.get_type_hints(current).get(name)
            value = value.get(name) if isinstance(value, dict) else None
        else:
            current = (typing.get_args(current) or (None,))[0]
            value = value[int(index)] if index.isdigit() and isinstance(value, list) else None
        current = _pick(current, value)
    if not (isinstance(current, type) and issubclass(current, msgspec.Struct)):
        return None
    return current


def _pick(kind: Any, value: Any) -> Any:
    """The struct of a union that `value`'s tag names."""
    if not isinstance(kind, types.UnionType):
        return kind
    structs = [one for one in typing.get_args(kind) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    named = value.get("kind") if isinstance(value, dict) else None
    return next((one for one in structs if one.__struct_config__.tag == named), structs[0] if structs else kind)
