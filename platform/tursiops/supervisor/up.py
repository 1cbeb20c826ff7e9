"""The flow of `up`: refuse what can't work, start everything, show the first answer, follow the logs, end it all."""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

from tursiops.progress import Progress, SetupError, or_full_disk
from tursiops.settings import base, env
from tursiops.supervisor import ask, ports, state, table
from tursiops.supervisor.processes import Processes
from tursiops.supervisor.task import Task

START_LIMIT_S = 180.0


class Up:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.host = ask.reachable(base.GATEWAY_HOST)
        self.port = base.GATEWAY_PORT
        self.url = f"http://{self.host}:{self.port}"
        self.processes = Processes(base.RUN_DIR, self.port)
        self.stop = asyncio.Event()
        self.progress = Progress()
        self.waiting: dict[str, str] = {}  # name → what it does now
        self.login = ""  # of an admin made just now; shown once, also where a later step fails

    async def run(self) -> int:
        """Exit status: 0 after Ctrl-C, 1 where a step failed."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                asyncio.get_running_loop().add_signal_handler(number, self._told_to_stop)
        with state.only_one(base.RUN_DIR):
            starting = asyncio.create_task(self._start())
            stopping = asyncio.create_task(self.stop.wait())
            try:
                await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    self._started(starting)
                    if not self.options.exit_when_ready:
                        print("Logs follow; Ctrl-C ends everything.\n", flush=True)
                        self.processes.follow()
                        await stopping
            finally:
                starting.cancel()
                stopping.cancel()
                await asyncio.gather(starting, stopping, return_exceptions=True)
                await self._end()
        return 0

    def _started(self, starting: asyncio.Task[None]) -> None:
        try:
            starting.result()
        except SetupError as error:
            raise or_full_disk(error, base.DATA_DIR) from None

    def _told_to_stop(self) -> None:
        if self.stop.is_set():
            print("\nkilling everything", flush=True)
            self.processes.kill()
        self.stop.set()

    async def _end(self) -> None:
        began = time.monotonic()
        self._print_login()
        self.processes.follow(False)
        if self.processes.children:
            print("\nstopping (Ctrl-C again kills at once)", flush=True)
        await self.processes.stop()
        if self.processes.children:
            print(f"everything ended in {time.monotonic() - began:.1f} s", flush=True)

    # -- start --------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        ports.check_socket_path(base.RUN_DIR / "broker.sock")
        if left := state.end_leftovers(base.RUN_DIR):
            print(f"ended what an earlier start left behind: {', '.join(left)}", flush=True)
        ports.check_port(base.GATEWAY_HOST, self.port)
        if not env.read("REDIS_URL"):
            (base.DATA_DIR / "broker").mkdir(exist_ok=True)
            self.processes.start(table.broker(base.RUN_DIR, base.DATA_DIR))
        prepared = base.RUN_DIR / "prepared"
        prepared.unlink(missing_ok=True)
        device = "cpu" if self.options.cpu else "cuda" if self.options.gpu else "auto"
        async with Task(table.first(self.options.no_demo, device), self.processes.logs / "setup-first.log") as first:
            # The engine takes longest and needs the database and the node: these two load alone.
            self.processes.start(table.node(prepared))
            others = [*table.doors(base.WEB_SOCKET), table.controller(prepared)]

            def loaded() -> None:
                while others:
                    self.processes.start(others.pop(0))

            todo = "see the log; is the disk full?"
            (admin,) = await self._while_alive(self._step(first, "database", todo, loaded))
            if admin["created"]:
                self.login = f"  login     {admin['username']} / {admin['password']}   (shown this once)"
            prepared.touch()
            demo, _ = await self._while_alive(self._demo(first), self._door_open())
            self._print_ready(demo)
        self.processes.start(table.beat())  # nobody waits for a schedule, so it takes no time from the others
        if demo.get("key"):
            await self._first_answer(demo["deployment"], demo["key"])

    async def _demo(self, first: Task) -> dict[str, Any]:
        if self.options.no_demo:
            return {}
        return await self._step(first, "demo model", "see the log and the console, or start with --no-demo")

    def _show(self, name: str, text: str) -> None:
        """The line names everything that is waited for."""
        self.waiting[name] = text
        self.progress.show(" · ".join(f"{name}: {text}" for name, text in self.waiting.items()))

    def _done(self, name: str, began: float) -> None:
        self.waiting.pop(name, None)
        self.progress.show(f"{name}: done in {time.monotonic() - began:.0f} s", last=True)

    async def _step(
        self, task: Task, name: str, todo: str, progressed: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        began = time.monotonic()
        self._show(name, "…")

        def show(_: float, text: str) -> None:
            self._show(name, text)
            progressed()

        report = await task.report(name, todo, show)
        self._done(name, began)
        return report

    async def _door_open(self) -> None:
        """Web answers through the gateway: both are up."""
        end = time.monotonic() + START_LIMIT_S
        began = time.monotonic()
        while True:
            status = 0
            if ports.answers(base.WEB_SOCKET):
                status = await asyncio.to_thread(ask.status_of, self.host, self.port, "/api/v1/auth/session")
            if status in (200, 401, 403):
                break
            if time.monotonic() > end:
                why = f"{self.url}/api/v1/auth/session answers {status or 'nothing'} after {START_LIMIT_S:.0f} s"
                raise SetupError("processes", why, "see web.log and gateway.log", self.processes.logs)
            self._show("web and gateway", "starting")
            await asyncio.sleep(0.2)
        self._done("web and gateway", began)

    def _fail_if_broken(self) -> None:
        if child := self.processes.broken():
            raise SetupError(child.program.name, self.processes.why(child), "see the log", child.log.path)

    async def _while_alive(self, *work: Coroutine[Any, Any, Any]) -> list[Any]:
        """Results of all, given up as soon as a process keeps dying: waiting for a model would never end."""
        tasks = [asyncio.create_task(each) for each in work]
        try:
            pending: set[asyncio.Task[Any]] = set(tasks)
            while pending:
                done, pending = await asyncio.wait(pending, timeout=1.0, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
                self._fail_if_broken()
            return [task.result() for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- what the newcomer sees -----------------------------------------------------------------------------------

    def _print_login(self) -> None:
        if self.login:
            print(self.login)
            self.login = ""

    def _print_ready(self, demo: dict[str, Any]) -> None:
        seconds = time.monotonic() - self.progress.began
        print(f"\nTursiops is up after {seconds:.0f} s.\n\n  console   {self.url}")
        self._print_login()
        if name := demo.get("deployment"):
            print(f"\n  try it    {ask.curl(self.url, name, demo.get('key') or '$TURSIOPS_KEY')}")
            if demo.get("key"):
                print("            (this key is shown once; more under API keys in the console)")
        print(flush=True)

    async def _first_answer(self, model: str, key: str) -> None:
        print(f"  {model} is asked: {ask.QUESTION}\n  > ", end="", flush=True)
        try:
            answer = await asyncio.to_thread(self._stream, model, key, lambda text: print(text, end="", flush=True))
        except ValueError as error:
            raise SetupError("first answer", str(error), "see gateway.log", self.processes.logs) from None
        print(
            f"\n  first token after {answer.first_token_s:.2f} s, then {answer.tokens_per_s:.0f} tokens/s\n", flush=True
        )

    def _stream(self, model: str, key: str, show: Callable[[str], Any]) -> ask.Answer:
        answer: ask.Answer | None = None
        for piece in ask.ask(self.host, self.port, model, key):
            if isinstance(piece, ask.Answer):
                answer = piece
            else:
                show(piece)
        assert answer is not None, "ask() ends with the answer or raises"
        return answer
