"""Is a deployment's input something that can run? Every refusal names the field, the reason and what to do."""

from __future__ import annotations

import re
from typing import Any

import jsonschema

from engines.api import Capabilities, Engine, Role
from tursiops.core import registry
from tursiops.core.errors import NotFound
from tursiops.deployments.models import Deployment, Desired, Revision
from tursiops.deployments.refusals import refuse
from tursiops.deployments.specs import shape_of
from tursiops.deployments.speculation import check_speculation
from tursiops.fleet.models import Node
from tursiops.registry.models import Version, VersionState

MOST_REPLICAS = 64
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def check_name(team: Any, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise refuse(
            "name",
            f"{name!r} can't be a served name.",
            "Use 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit.",
        )
    if Deployment.objects.filter(team=team, name=name).exclude(desired=Desired.DELETED).exists():
        raise refuse("name", f"{name!r} is taken in this team.", "Choose another name, or edit that deployment.")


def check_replicas(replicas: dict[str, Any], capabilities: Capabilities) -> None:
    if not replicas:
        raise refuse("replicas", "No role is given.", 'Send for example {"unified": 1}.')
    for role, count in replicas.items():
        if role not in set(capabilities.roles):
            raise refuse("replicas", f"The engine has no role {role!r}.", f"Roles: {', '.join(capabilities.roles)}.")
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_REPLICAS:
            raise refuse("replicas", f"{role} is {count!r}; it must be a whole number from 0 to {MOST_REPLICAS}.")
    prefill, decode = replicas.get(Role.PREFILL, 0), replicas.get(Role.DECODE, 0)
    if bool(prefill) != bool(decode):
        raise refuse("replicas", "Prefill and decode need each other.", "Give both at least one replica, or neither.")


def check_revision(revision: Revision) -> Engine:
    """The engine that is to run it. `revision` need not be saved."""
    version = revision.version
    if version.state != VersionState.READY:
        raise refuse("version", f"{version} is {version.state}. {version.reason}".strip(), "Deploy a ready version.")
    engine = _engine(revision.engine)
    capabilities = engine.capabilities()
    _check_served(version, revision, capabilities)
    _check_lengths(revision)
    _check_places(revision)
    check_options(engine, revision.options)
    check_speculation(revision, capabilities)
    return engine


def check_options(engine: Engine, options: Any) -> None:
    if not isinstance(options, dict):
        raise refuse("options", "It must be an object of the engine's settings.")
    validator = jsonschema.Draft202012Validator(engine.options_schema())
    error = jsonschema.exceptions.best_match(validator.iter_errors(options))
    if error is not None:
        where = ".".join(["options", *map(str, error.absolute_path)])
        raise refuse("options", f"{where}: {error.message}", f"See the settings of engine {engine.name}.")


def _engine(name: str) -> Engine:
    try:
        return registry.engine(name)
    except NotFound as error:
        raise refuse("engine", error.message, error.hint) from error


def _check_served(version: Version, revision: Revision, capabilities: Capabilities) -> None:
    """Empty lists of capabilities mean "any"."""
    asked = [
        ("version", "format", version.format, capabilities.formats),
        ("version", "architecture", version.architecture, capabilities.architectures),
        ("device", "device", revision.device, ["auto", *capabilities.devices]),
        ("dtype", "dtype", revision.dtype, ["auto", *capabilities.dtypes]),
    ]
    for field, what, value, known in asked:
        if value and known and value not in known:
            text = f"Engine {revision.engine} does not serve {what} {value!r}."
            raise refuse(field, text, f"It serves: {', '.join(sorted(known))}.")


def _check_lengths(revision: Revision) -> None:
    limit = shape_of(revision.version).context_length
    if limit and revision.max_model_len > limit:
        raise refuse(
            "max_model_len",
            f"{revision.max_model_len} tokens is more than the {limit} that {revision.version} was trained for.",
            f"Use at most {limit}, or 0 for the model's own.",
        )


def _check_places(revision: Revision) -> None:
    indices = revision.gpu_indices
    if not isinstance(indices, list) or not all(type(index) is int and index >= 0 for index in indices):
        raise refuse("gpu_indices", "It must be a list of GPU numbers, from 0 up.")
    if len(set(indices)) != len(indices):
        raise refuse("gpu_indices", "A GPU is named twice.")
    if indices and revision.device == "cpu":
        raise refuse("gpu_indices", "GPUs are chosen, but the device is cpu.", "Leave out one of the two.")
    if revision.node_name and not Node.objects.filter(name=revision.node_name).exists():
        known = ", ".join(Node.objects.values_list("name", flat=True)) or "none yet"
        raise refuse("node_name", f"There is no node {revision.node_name!r}.", f"Nodes: {known}.")
    gpus = max((int(item.get("gpus") or 0) for item in revision.topology.values()), default=0)
    if indices and gpus > len(indices):
        raise refuse("gpu_indices", f"A replica needs {gpus} GPUs, and {len(indices)} may be used.")
