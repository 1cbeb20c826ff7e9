"""A suite's spec: what it measures, checked through evaluation's own schemas, and made whole for one run.

    {"load": evaluation.schema.RunSpec without what the target gives | null,
     "quality": evaluation.quality.suite.Suite without its endpoint | null,
     "profile": evaluation.profile.BusinessProfile, for the planner | null}

What a team writes must not read the server's files or call addresses of its choice: texts are the team's corpora
(`corpus:<id>`) or come with evaluation (`bundled:<name>`), and `reference` and `judge` are the team's deployments.
"""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from evaluation.profile import ProfileError, read_profile
from evaluation.quality import sets
from evaluation.quality.suite import read_suite
from evaluation.schema import Rate, RunSpec, Search, Sweep
from evaluation.spec_errors import SpecError, read_spec
from tursiops.accounts.models import Team
from tursiops.core import store
from tursiops.core.errors import TursiopsError
from tursiops.deployments.models import Deployment, Desired
from tursiops.registry.models import Corpus

PARTS = ("load", "quality", "profile")
RUN_PARTS = ("load", "quality")  # those that a run measures, in this order
ENDPOINT_FIELDS = ("api", "timeout_s", "extra_body")  # the rest of an endpoint is the target's
BESIDE = ("reference", "judge")  # further endpoints of the quality part: {"deployment": name, …}
CORPUS, BUNDLED = "corpus:", "bundled:"
_ANYWHERE = {"url": "http://target.invalid"}  # stands for the target while a suite has none
_LM_EVAL_TASK = re.compile(r"[A-Za-z0-9_-]+")  # a name, not a path: lm-eval would run the file's code
MOST_LEVELS, MOST_PROCESSES, MOST_S = 64, 64, 3600.0  # of one run, on a machine that others use, too
_SPARE_S = 900.0  # for building the data set, calibration and the report
_QUALITY_S = 6 * 3600.0

Part = dict[str, Any]


def check(spec: Part, team: Team) -> Part:
    """The spec as it is stored. Raises TursiopsError with the field's path, as `spec.load.load.rate`."""
    unknown = sorted(set(spec) - set(PARTS))
    if unknown:
        raise _refuse(f"spec.{unknown[0]}", "unknown part", f"Known here: {', '.join(PARTS)}.")
    for name in PARTS:
        if not isinstance(spec.get(name), dict | None):
            raise _refuse(f"spec.{name}", "must be an object, or null")
    found = {name: spec.get(name) or None for name in PARTS}
    if not any(found[name] for name in RUN_PARTS):
        raise _refuse("spec", "nothing to run", f"Give {' or '.join(RUN_PARTS)}.")
    if found["load"] is not None:
        _check_part("load", found["load"], team, read_spec)
    if found["quality"] is not None:
        _check_part("quality", found["quality"], team, read_suite)
    if found["profile"] is not None:
        try:
            read_profile(found["profile"])
        except ProfileError as error:
            raise _refuse("spec.profile", str(error)) from error
    return found


def _check_part(name: str, part: Part, team: Team, read: Callable[[Part], Any]) -> None:
    """`read` sees the part with stand-ins for what only a run knows."""
    whole = copy.deepcopy(part)
    for field, endpoint in _endpoints(name, whole):
        path = f"spec.{name}.{field}"
        if not isinstance(endpoint, dict):
            raise _refuse(path, "must be an object")
        if field in BESIDE:
            _deployment(path, endpoint.pop("deployment", None), team)
        for key in sorted(set(endpoint) - set(ENDPOINT_FIELDS)):
            raise _refuse(
                f"{path}.{key}", "comes from the target of a run", f"A suite may give {', '.join(ENDPOINT_FIELDS)}."
            )
        endpoint |= _ANYWHERE
    try:
        found = read(whole)
    except SpecError as error:
        raise _refuse(f"spec.{name}{error.path.removeprefix('$')}", error.reason, error.fix) from error
    for path, value, most in _bounded(found):
        if value > most:
            raise _refuse(f"spec.{name}.{path}", f"{value:g} is too much for one run", f"At most {most:g} here")
    _check_tasks(name, whole)
    for path, holder, key in _files(name, whole):
        _resolved(f"spec.{name}.{path}", holder[key], team)


def _bounded(found: Any) -> Iterator[tuple[str, float, float]]:
    """(path, value, its upper bound) of each field that says how long, or how hard, a run is at work."""
    for field in ("endpoint", *BESIDE):
        endpoint = getattr(found, field, None)
        if endpoint is not None:
            yield f"{field}.timeout_s", endpoint.timeout_s, MOST_S
    if isinstance(found, RunSpec):
        yield "steady.max_s", found.steady.max_s, MOST_S
        yield "warm_up_s", found.warm_up_s, MOST_S
        yield "cool_down_s", found.cool_down_s, MOST_S
        yield "load.ramp_s", _ramp_s(found), MOST_S
        yield "processes", found.processes, MOST_PROCESSES
        yield "load.max_levels" if isinstance(found.load, Search) else "load.rates", _levels(found), MOST_LEVELS


def _check_tasks(name: str, part: Part) -> None:
    """lm-eval takes paths of task files, which are code. Raises TursiopsError. The part is valid."""
    for index, task in enumerate(part["tasks"] if name == "quality" else []):
        if task["kind"] != "lm_eval":
            continue
        path = f"spec.quality.tasks[{index}]"
        for place, one in enumerate(task["tasks"]):
            if not _LM_EVAL_TASK.fullmatch(one):
                raise _refuse(f"{path}.tasks[{place}]", f"{one!r} is no name of a task", "Letters, digits, _ and -")
        if task.get("include_path"):
            raise _refuse(f"{path}.include_path", "task files are code, and are not read here", "Leave it out")
        if task.get("data", BUNDLED) != BUNDLED:
            fix = f"Leave it out; a task of kind rules or choices takes {CORPUS}<id>"
            raise _refuse(f"{path}.data", "the tasks of lm-eval have rows of their own", fix)


def _endpoints(name: str, part: Part) -> Iterator[tuple[str, Any]]:
    """The endpoints of a part; the measured one is made where it is not there."""
    yield "endpoint", part.setdefault("endpoint", {})
    if name == "quality":
        for field in BESIDE:
            if part.get(field) is not None:
                yield field, part[field]


def _files(name: str, part: Part) -> Iterator[tuple[str, Part, str]]:
    """(path, holder, key) of each field that names a file. The part is valid."""
    if name == "load":
        if "path" in part["dataset"]:
            yield "dataset.path", part["dataset"], "path"
        return
    for index, task in enumerate(part["tasks"]):
        for key in ("data", "calibration"):
            if task.get(key) and task["kind"] != "lm_eval":
                yield f"tasks[{index}].{key}", task, key
    for index, gate in enumerate([part, *part.get("gates", [])]):
        if gate.get("baseline"):
            yield f"gates[{index - 1}].baseline" if index else "baseline", gate, "baseline"


def _resolved(where: str, named: str, team: Team) -> str:
    """The path on this server of what a field names. Raises TursiopsError."""
    if named.startswith(BUNDLED):
        known = sorted(sets.manifest())
        if named.removeprefix(BUNDLED) not in known:
            raise _refuse(where, f"no set {named} comes with evaluation", f"There are: {', '.join(known)}")
        return named
    if not named.startswith(CORPUS):
        fix = f"Upload the text as a corpus and write {CORPUS}<id>, or name one that is {BUNDLED}<name>."
        raise _refuse(where, "files of the server are not read", fix)
    try:
        corpus = Corpus.objects.filter(team=team, pk=uuid.UUID(named.removeprefix(CORPUS))).first()
    except ValueError:
        corpus = None
    if corpus is None:
        raise _refuse(where, f"{named} is no corpus of this team", "The list of corpora has their ids.")
    return str(store.path_of(corpus.blob_id))


def _deployment(where: str, name: Any, team: Team) -> Deployment:
    found: Deployment | None = (
        Deployment.objects.filter(team=team, name=str(name)).exclude(desired=Desired.DELETED).first()
    )
    if found is None:
        raise _refuse(f"{where}.deployment", f"{name!r} is no deployment of this team", "Give its served name.")
    return found


def for_run(name: str, part: Part, *, endpoint: Part, gateway: Part, team: Team, seed: int | None) -> Part:
    """A part of a suite as the child reads it. `endpoint`: the target's; `gateway`: of deployments beside it.

    Raises TursiopsError where a text or a deployment is gone.
    """
    whole = copy.deepcopy(part)
    for field, given in _endpoints(name, whole):
        if field in BESIDE:
            given |= {**gateway, "model": _deployment(f"spec.{name}.{field}", given.pop("deployment"), team).name}
        else:
            given |= {**endpoint, **{key: given[key] for key in ENDPOINT_FIELDS if key in given}}
    _check_tasks(name, whole)  # again: it may have been stored before this was asked
    for path, holder, key in _files(name, whole):
        holder[key] = _resolved(f"spec.{name}.{path}", holder[key], team)
    if seed is not None:
        whole["seed"] = seed
    return whole


def served_names(spec: Part) -> list[str]:
    """Deployments beside the target that a run of this spec asks."""
    quality = spec.get("quality") or {}
    return [quality[field]["deployment"] for field in BESIDE if quality.get(field)]


def time_limit_s(spec: Part) -> float:
    """Seconds after which no run of this spec is still at work: how long its key lives."""
    limit = _SPARE_S
    if spec.get("load"):
        load = read_spec({**spec["load"], "endpoint": {**spec["load"].get("endpoint", {}), **_ANYWHERE}})
        warm_up_s = max(load.warm_up_s, _ramp_s(load))
        limit += _levels(load) * (load.steady.max_s + warm_up_s + load.cool_down_s + load.endpoint.timeout_s)
    if spec.get("quality"):
        limit += _QUALITY_S
    return limit


def _ramp_s(spec: RunSpec) -> float:
    return spec.load.ramp_s if isinstance(spec.load, Rate) else 0.0


def _levels(spec: RunSpec) -> int:
    if isinstance(spec.load, Search):
        return spec.load.max_levels
    return len(spec.load.rates) if isinstance(spec.load, Sweep) else 1


def _refuse(path: str, reason: str, fix: str = "") -> TursiopsError:
    said = f"{reason[:1].upper()}{reason[1:]}".rstrip(".")
    fix = f"{fix}." if fix and fix[-1] not in ".?!" else fix
    return TursiopsError(f"{path}: {said}.", hint=fix, fields={path: [f"{said}. {fix}".strip()]})
