"""What operators ask of a running instance: a trace of its next steps, and where its memory is.

The engine answers under /debug, behind the token of this instance, which never leaves the platform. What slows the
engine or stops it for a moment is written into the team's events; looking at sizes is not.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import Conflict, TursiopsError, Unavailable
from tursiops.deployments.models import Instance, InstanceState
from tursiops.deployments.rows import deployment_row
from tursiops.secrets import SecretError, open_instance_token

MAX_STEPS = 200
MAX_TIMEOUT_S = 60
"""How long steps are waited for: as long as people watch a spinner."""
GRACE_S = 120.0
"""For the last step and the writing of the file, beyond it."""
MEMORY_S = 40.0
MAX_ANSWER = 512 * 2**20  # bytes
_NO_ENDPOINT = {404, 405}


@dataclass(frozen=True)
class Recording:
    data: bytes
    name: str  # of the file, as people save it
    content_type: str
    steps: int


def take_trace(*, instance: Instance, actor: Actor, steps: int, timeout_s: float) -> Recording:
    """A timeline of the next `steps` steps, gzipped JSON for https://ui.perfetto.dev. Raises TursiopsError: 409 where
    no step runs within `timeout_s` or another trace does, 503 where the engine can't be asked."""
    body = {"steps": steps, "timeout": timeout_s}
    data, found = ask_engine(instance, "POST", "/debug/trace", body, timeout_s + GRACE_S)
    recording = Recording(data, f"{_stem(instance)}-trace.json.gz", "application/gzip", found)
    _record(instance, actor, "instance.traced", f"{_name(instance)}: a trace of {found} steps was taken.", found)
    return recording


def take_snapshot(*, instance: Instance, actor: Actor, steps: int, timeout_s: float) -> Recording:
    """The allocations of a GPU over `steps` steps, a pickle for https://pytorch.org/memory_viz. Raises TursiopsError
    as `take_trace` does, and 400 for an engine without a GPU."""
    body = {"steps": steps, "timeout": timeout_s}
    data, found = ask_engine(instance, "POST", "/debug/memory/snapshot", body, timeout_s + GRACE_S)
    recording = Recording(data, f"{_stem(instance)}-memory.pickle", "application/octet-stream", found)
    text = f"{_name(instance)}: a memory snapshot of {found} steps was taken."
    _record(instance, actor, "instance.memory_taken", text, found)
    return recording


def memory_of(instance: Instance) -> dict[str, Any]:
    """As `engines.native.memory_table` tells it. Raises TursiopsError."""
    data, _ = ask_engine(instance, "GET", "/debug/memory", None, MEMORY_S)
    table: dict[str, Any] = json.loads(data)
    return table


def ask_engine(
    instance: Instance, method: str, path: str, body: dict[str, Any] | None, timeout_s: float
) -> tuple[bytes, int]:
    """(the answer's body, steps that it tells of). No query where deployment and revision are read. Raises
    TursiopsError."""
    if instance.state != InstanceState.READY or not instance.port:
        raise Conflict(
            f"This instance is {instance.state}; only one that is ready can be looked into.",
            code="not_ready",
            hint="Wait until it serves.",
        )
    try:
        token = open_instance_token(instance.token_encrypted)
    except SecretError as error:
        raise Unavailable("The token of this instance can't be read.", hint="Restart the instance.") from error
    connection = http.client.HTTPConnection(instance.address or "127.0.0.1", instance.port, timeout=timeout_s)
    try:
        connection.request(
            method,
            path,
            json.dumps(body) if body is not None else None,
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        data = answer.read(MAX_ANSWER + 1)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"The engine could not be asked: {error or type(error).__name__}.",
            hint="Look at the instance's log, then try again.",
        ) from error
    finally:
        connection.close()
    if len(data) > MAX_ANSWER:
        raise TursiopsError(f"The engine's answer is larger than {MAX_ANSWER:,} bytes.", hint="Ask for fewer steps.")
    if answer.status != 200:
        raise _refusal(instance, answer.status, data)
    return data, int(answer.headers.get("x-tursiops-steps") or 0)


def _refusal(instance: Instance, status: int, data: bytes) -> TursiopsError:
    """The engine's own words."""
    engine = instance.revision.engine
    if status in _NO_ENDPOINT:
        return TursiopsError(f"The engine {engine} can't be looked into.", code="not_supported")
    try:
        error = json.loads(data)["error"]
        message, code = str(error["message"]), str(error.get("code") or "refused")
    except (ValueError, KeyError, TypeError):
        message, code = f"it answered with status {status}", "refused"
    said = f"The engine says: {message}."
    if status == 409:
        return Conflict(said, code=code, hint=_HINTS.get(code, ""))
    if status == 400:
        return TursiopsError(said, code=code)
    return Unavailable(said, code=code, hint="Look at the instance's log, then try again.")


_HINTS = {
    "no_steps": "Send it requests, from the playground or a client, and trace again meanwhile.",
    "already_running": "Wait for its end.",
    "trace_running": "Wait for its end.",
}


def _name(instance: Instance) -> str:
    return f"{instance.deployment.name} {instance.role} {instance.index}"


def _stem(instance: Instance) -> str:
    """Names of deployments are safe in a file's name: `deployments.checks` sees to it."""
    return _name(instance).replace(" ", "-")


def _record(instance: Instance, actor: Actor, kind: str, text: str, steps: int) -> None:
    deployment = instance.deployment
    with transaction.atomic():
        record_change(
            team=deployment.team,
            actor=actor,
            kind=kind,
            subject_type="deployment",
            subject_id=deployment.pk,
            text=text,
            payload=deployment_row(deployment),
            changes={"instance": [None, str(instance.pk)], "steps": [None, steps]},
        )
