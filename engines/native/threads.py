"""How the threads of a CPU engine wait for the next product: awake while the machine is theirs, else asleep.

A pass wakes OpenMP's threads a hundred times, and waking one that sleeps takes 50 to 100 µs: a quarter of a decode
step of a small model. A thread that looks for work instead (it spins) has it at once, but takes the core from whoever
else wants it, be it the thread that it waits for: four times as slow beside one busy process. So a thread of ours
watches how long ours wait for a core (`run_delay` of Linux's schedstat), and lets them spin while they hardly do.

libgomp reads GOMP_SPINCOUNT once, at its start. But as it documents, threads hardly spin while a process has more of
them than there are cores: a second team, which does nothing and is let go again, is the switch.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

log = logging.getLogger(__name__)

SPINS = "GOMP_SPINCOUNT"
DEFAULT_SPINS = 30_000  # some 0.3 ms: more than lies between two products of a decode step
TASKS = Path("/proc/self/task")

BUSY, QUIET = 0.2, 0.1
"""Seconds that our threads, all together, waited for a core in a second: above the one they sleep, below the other they
may spin. Alone on two cores it is 0.01 to 0.05, beside a process that takes a quarter of one 0.25."""
FIRST_S, LAST_S = 1.0, 32.0
"""How long it must have been quiet before they spin; doubled each time that they had to stop soon."""
LOOK_S = 0.1
_GRAIN = 32_768  # numbers from which torch gives a thread a share of its own


def may_spin() -> None:
    """In a process that will `watch`, before it imports torch. An operator's own count of spins stands; 0 keeps threads
    asleep."""
    os.environ.setdefault(SPINS, str(DEFAULT_SPINS))


def waited_s(tasks: Path = TASKS) -> float | None:
    """Seconds that the threads of this process, all together, have been ready and had no core. None: not told here."""
    total = 0
    try:
        for task in tasks.iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[1])
            except (FileNotFoundError, ProcessLookupError):  # the thread has ended, or the kernel keeps no such file
                if not (task.parent / str(os.getpid()) / "schedstat").exists():
                    return None
    except (OSError, IndexError, ValueError):
        return None
    return total / 1e9


class Decision:
    """Whether to spin, from how long threads waited. Times in seconds, of any one clock."""

    def __init__(self, now: float) -> None:
        self.awake = False
        self._since = now  # of being awake; asleep: of quiet
        self._patience = FIRST_S

    def look(self, now: float, share: float) -> bool:
        """share: what our threads waited since the last look, over the time between. Whether to spin from here on."""
        if self.awake and share > BUSY:
            soon = now - self._since < LAST_S
            self._patience = min(2 * self._patience, LAST_S) if soon else FIRST_S
            self.awake, self._since = False, now
        elif not self.awake and share > QUIET:
            self._since = now
        elif not self.awake and now - self._since >= self._patience:
            self.awake, self._since = True, now
        return self.awake


class Sleepers:
    """A second team of OpenMP threads, so that the process has more of them than cores."""

    def __init__(self, cores: int) -> None:
        """cores: how many threads the first team has."""
        self._cores = cores
        self._size = max(2, len(os.sched_getaffinity(0)) - cores + 2)
        self._ready, self._release = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold, name="sleepers", daemon=True)
        self._thread.start()
        self._ready.wait()

    def _hold(self) -> None:
        import torch  # only here: `may_spin` comes before it

        torch.set_num_threads(self._size)  # of this thread, and of those that first compute from now on
        torch.ones(self._size * _GRAIN).sum()
        torch.set_num_threads(self._cores)
        self._ready.set()
        self._release.wait()

    def let_go(self) -> None:
        self._release.set()
        self._thread.join()


class Switch:
    """Lets the threads of this process spin or sleep. cores: as many as torch computes with."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._sleepers: Sleepers | None = Sleepers(cores)

    def spin(self, awake: bool) -> None:
        if awake and self._sleepers is not None:
            self._sleepers.let_go()
            self._sleepers = None
        elif not awake and self._sleepers is None:
            self._sleepers = Sleepers(self._cores)


def watch(cores: int) -> None:
    """Decide from now on, until the process ends, how its threads wait. cores: as many as torch computes with; nothing
    is to be decided for one."""
    if cores < 2:
        return
    switch = Switch(cores)
    if waited_s() is None:
        log.info("the kernel does not tell how long threads wait for a core: ours sleep between products")
        return
    threading.Thread(target=_watch, args=(switch,), name="threads", daemon=True).start()


def _watch(switch: Switch) -> None:
    then, before = time.monotonic(), waited_s() or 0.0
    decision = Decision(then)
    while True:
        time.sleep(LOOK_S)
        now, waited = time.monotonic(), waited_s() or 0.0
        switch.spin(decision.look(now, max(0.0, waited - before) / (now - then)))  # who ends takes its time along
        then, before = now, waited
