"""Where the core's time goes, phase by phase: one clock that the loop tells what it does next.

Time runs into the phase that was entered last. A trace (`engines.native.tracing`) takes the clock's place while it
runs, so that the loop has one call per phase and asks nothing.
"""

from __future__ import annotations

from time import perf_counter

PHASES = ("schedule", "launch", "wait", "commit", "send")
"""schedule: plan the next step. launch: hand it to the device; on a CPU, compute it. wait: for the tokens of the oldest
step on its way. commit: enter its tokens and endings. send: tell the API process (counted with the step after)."""
SCHEDULE, LAUNCH, WAIT, COMMIT, SEND, OUTSIDE = range(len(PHASES) + 1)
"""OUTSIDE: taking in messages, or idle; not part of a step."""


class StepClock:
    """Owned by the pipeline. Two steps may be on their way: what is measured is turns of the loop, each of which plans
    one step and commits another."""

    def __init__(self) -> None:
        self._spent = [0.0] * (len(PHASES) + 1)
        self._phase, self._since = OUTSIDE, perf_counter()

    def enter(self, phase: int) -> None:
        now = perf_counter()
        self._spent[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def take(self) -> tuple[float, ...]:
        """Seconds spent in each of PHASES since the last call. Called once per step that is committed."""
        spent = self._spent
        self._spent = [0.0] * len(spent)
        return tuple(spent[:OUTSIDE])

    def idle(self) -> None:
        """Nothing to do: said about once a second."""
