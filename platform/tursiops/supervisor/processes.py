"""All children of one machine: started in order, kept in the state file, ended in the order that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import IO

from tursiops.fleet.backends import identity
from tursiops.supervisor import state
from tursiops.supervisor.child import Child, describe, die_with_parent
from tursiops.supervisor.logs import ProcessLog
from tursiops.supervisor.table import Program, django

TOO_OFTEN = 3  # quick ends in a row that make a start fail
ENGINES_STOP_S = 60.0  # its imports alone take 20 s on a machine that is busy


class Processes:
    def __init__(self, run: Path, port: int) -> None:
        self.run, self.port = run, port
        self.logs = run / "logs"
        self.children: dict[str, Child] = {}
        self._unwritten = False  # the state file; said once

    def start(self, program: Program) -> Child:
        child = Child(program, ProcessLog(self.logs, program.name), self._remember)
        self.children[program.name] = child
        child.start()
        return child

    def _remember(self) -> None:
        running = {name: (child.pid, child.start_time) for name, child in self.children.items() if child.running}
        try:
            state.write(self.run, self.port, running)
            self._unwritten = False
        except OSError as error:  # a full disk must not keep a dead child from its next start
            if not self._unwritten:
                print(f"{self.run / 'supervisor.json'} can't be written: {error}", flush=True)
            self._unwritten = True

    def broken(self) -> Child | None:
        """A child that keeps ending right after its start."""
        return next((child for child in self.children.values() if child.quick_failures >= TOO_OFTEN), None)

    def why(self, child: Child) -> str:
        last = next((line for line in reversed(child.log.tail) if line and not line.startswith("---")), "no word")
        return f"it ended {child.quick_failures} times, last with {describe(child.last_status)}: {last[:300]}"

    def follow(self, wanted: bool = True) -> None:
        for child in self.children.values():
            child.log.follow = wanted

    async def stop(self) -> None:
        """First who would start things, then the engines, then the doors (their usage goes to the broker), then it."""
        launched = bool(self._launches())
        await asyncio.gather(
            self._stop("beat", "controller", "node"),
            self._stop_engines() if launched else asyncio.sleep(0),  # waits for the node's lock while it loads
        )
        await self._stop("gateway", "web")
        await self._stop("broker")
        state.clear(self.run)
        for child in self.children.values():
            child.log.close()

    async def _stop(self, *names: str) -> None:
        await asyncio.gather(*(self.children[name].stop() for name in names if name in self.children))

    async def _stop_engines(self) -> None:
        """The node's own command ends them and says so in their rows; what it leaves is killed."""
        with contextlib.ExitStack() as stack:
            log: IO[bytes] | int = asyncio.subprocess.DEVNULL
            with contextlib.suppress(OSError):  # a full disk: they must end all the same
                log = stack.enter_context((self.logs / "stop-engines.log").open("wb"))
            process = await asyncio.create_subprocess_exec(
                *django("node", "--stop-engines", "--skip-checks"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),
            )
            try:
                await asyncio.wait_for(process.wait(), ENGINES_STOP_S)
            except TimeoutError:
                process.kill()
                await process.wait()
        self.kill_engines()

    def kill_engines(self) -> None:
        for pid, started in self._launches():
            identity.end_group(pid, started)

    def _launches(self) -> list[tuple[int, float]]:
        """Engines and the job worker: they have sessions of their own and outlive the node that launched them."""
        folders = [*(self.run / "instances").glob("*"), self.run / "worker"]
        launches = [launch for folder in folders if (launch := identity.launch_of(folder))]
        found = [(launch.pid, launch.pid_start_time) for launch in launches]
        return [(pid, started) for pid, started in found if identity.is_alive(pid, started)]

    def kill(self) -> None:
        """The second Ctrl-C: everything, now."""
        self.kill_engines()
        for child in self.children.values():
            child.signal(signal.SIGKILL)
