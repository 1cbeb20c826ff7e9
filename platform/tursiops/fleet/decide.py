"""What a node does with one instance now: row and observation in, one step out. Pure, so that every case is tested.

row                     engine                  step
wants to run            none, not due           wait (back-off)
                        none, due               start, at the next epoch
                        gone                    back off, or fail for good after too many times
                        of this epoch           follow what it says and what /health says
                        of another epoch        drain it; it starts again when it is gone
wants to stop           alive                   drain, then kill at the limit
                        none                    stopped
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from engines.api import Phase
from tursiops.deployments.models import Desired, Instance, InstanceState
from tursiops.fleet.backends.base import Observation

# Starting again changes nothing about these: the files or the settings are at fault.
PERMANENT = {
    "truncated",
    "bad_magic",
    "missing_tensor",
    "wrong_shape",
    "unknown_architecture",
    "unknown_type",
    "unknown_tokenizer",
    "bad_values",
}


@dataclass(frozen=True)
class Limits:
    """Times in seconds."""

    drain_s: float = 60.0
    back_off_first_s: float = 1.0
    back_off_most_s: float = 60.0
    most_starts: int = 6  # failures in a row, after which it stays failed
    settled_s: float = 300.0  # ready for so long: earlier failures are forgotten
    silent_s: float = 15.0  # an engine that does not answer leaves the rotation
    hung_s: float = 120.0  # and is ended after this


@dataclass(frozen=True)
class Step:
    """Changes to the row (compare-and-set on state and epoch), then an act on the engine."""

    changes: dict[str, Any] = field(default_factory=dict)
    act: Literal["", "start", "terminate", "kill"] = ""


def decide(row: Instance, seen: Observation, now: datetime, limits: Limits) -> Step:
    if row.desired != Desired.RUNNING:
        return _stop(row, seen)
    if row.state == InstanceState.FAILED:
        return Step(act="kill") if seen.alive else Step()
    if seen.alive and seen.epoch == row.epoch:
        return _follow(row, seen, now, limits)
    if seen.alive:
        changes = _to(row, InstanceState.DRAINING, "It starts again once its requests have ended.")
        return Step(changes, "terminate")
    return _absent(row, seen, now, limits)


def _stop(row: Instance, seen: Observation) -> Step:
    if seen.alive:
        reason = row.reason or "Its requests end, then it stops."  # whoever asked for it has said why
        return Step(_to(row, InstanceState.DRAINING, reason), "terminate")
    # The leader is gone; "kill" ends what it may have left in its process group.
    act: Literal["", "kill"] = "" if row.state == InstanceState.STOPPED else "kill"
    return Step(_to(row, InstanceState.STOPPED, "Stopped.", pid=0, port=0), act)


def _follow(row: Instance, seen: Observation, now: datetime, limits: Limits) -> Step:
    if seen.phase == Phase.READY:
        return _follow_ready(row, seen, now, limits)
    if seen.phase == Phase.DRAINING:
        return Step(_to(row, InstanceState.DRAINING, "It was told to drain from outside; it starts again afterwards."))
    if seen.phase == Phase.FAILED:
        return Step(_to(row, InstanceState.STARTING, sentence(seen.reason) or "The engine reports a failure."), "kill")
    reason = sentence(seen.reason) or "The engine loads the model."
    return Step(_to(row, InstanceState.STARTING, reason, progress=seen.progress, pid=seen.pid))


def _follow_ready(row: Instance, seen: Observation, now: datetime, limits: Limits) -> Step:
    if seen.healthy and seen.proven:
        changes = _to(
            row,
            InstanceState.READY,
            "",
            progress=1.0,
            address=seen.host,
            port=seen.port,
            pid=seen.pid,
            pid_start_time=seen.pid_start_time,
            facts=seen.facts,
        )
        if row.state != InstanceState.READY:
            changes["ready_at"] = now
        elif row.restarts and row.ready_at and (now - row.ready_at).total_seconds() >= limits.settled_s:
            changes["restarts"] = 0
        return Step(changes)
    if seen.silent_s >= limits.hung_s:
        text = f"It has not answered for {seen.silent_s:.0f} s and is ended: {sentence(seen.reason)}"
        return Step(_to(row, InstanceState.UNREACHABLE, text), "kill")
    if seen.silent_s >= limits.silent_s:
        return Step(
            _to(row, InstanceState.UNREACHABLE, f"Its process lives but does not answer: {sentence(seen.reason)}")
        )
    return Step()  # one slow answer is no verdict


def _absent(row: Instance, seen: Observation, now: datetime, limits: Limits) -> Step:
    if row.state == InstanceState.DRAINING:  # asked to start again, and its requests have ended
        return Step(_to(row, InstanceState.SCHEDULED, "", next_start_at=None), "kill")
    if row.state == InstanceState.SCHEDULED:
        due = row.next_start_at is None or row.next_start_at <= now
        return Step(act="start") if due else Step()
    return Step(after_failure(row, how_it_ended(seen), now, limits, seen.error_code), "kill")


def after_failure(row: Instance, text: str, now: datetime, limits: Limits, code: str = "") -> dict[str, Any]:
    """Changes to a row whose engine ended by itself: another try after a pause, or the end with a next step."""
    failures = row.restarts + 1
    gone = {"restarts": failures, "pid": 0, "port": 0, "progress": 0.0}
    if code in PERMANENT:
        reason = f"{text} Another start would end the same way: use another version or change the settings."
        return _to(row, InstanceState.FAILED, reason, **gone)
    if failures >= limits.most_starts:
        reason = f"{text} It failed {failures} times in a row and is left alone. Read its log, then press Restart."
        return _to(row, InstanceState.FAILED, reason, **gone)
    pause = min(limits.back_off_most_s, limits.back_off_first_s * 2 ** (failures - 1))
    reason = f"{text} Start {failures + 1} of {limits.most_starts} follows in {pause:.0f} s."
    return _to(row, InstanceState.SCHEDULED, reason, next_start_at=now + timedelta(seconds=pause), **gone)


def how_it_ended(seen: Observation) -> str:
    """One sentence: the engine's own reason, else what the operating system knows."""
    if seen.phase == Phase.FAILED and seen.reason:
        return sentence(seen.reason)
    if seen.exit_code is None:
        return "The engine's process is gone."
    if seen.exit_code < 0:
        name = _signal_name(-seen.exit_code)
        hint = " (out of memory?)" if -seen.exit_code == signal.SIGKILL else ""
        return f"The engine was ended by {name}{hint}."
    words = f": {seen.last_words.rstrip('.')}" if seen.last_words and seen.exit_code else ""
    return f"The engine ended with exit code {seen.exit_code}{words}."


def sentence(text: str) -> str:
    """An engine's words with a capital and a full stop; empty stays empty."""
    text = text.strip().rstrip(".")
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _to(row: Instance, state: InstanceState, reason: str, **fields: Any) -> dict[str, Any]:
    """Only what differs from the row, so that an unchanged instance costs no write."""
    wanted = {"state": state, "reason": reason[:500], **fields}
    return {name: value for name, value in wanted.items() if getattr(row, name) != value}
