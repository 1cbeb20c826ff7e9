"""Steps of the set-up that run side by side, and the one line that shows how far they are. Standard library only."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

LEAST_FREE = 2 * 2**20  # bytes; SQLite and the broker need more than that for one change
FREE = "free some space (`df -h`), then start again: what is done already is kept"


class SetupError(Exception):
    """A step that failed: which, why, what to do, and where its log is."""

    def __init__(self, step: str, why: str, todo: str, log: Path | None = None) -> None:
        super().__init__(f"{step}: {why}")
        self.step, self.why, self.todo, self.log = step, why, todo, log

    def __str__(self) -> str:
        lines = [f"{self.step} failed: {self.why}", f"  what to do: {self.todo}"]
        return "\n".join([*lines, f"  log: {self.log}"] if self.log else lines)


def disk_full(error: OSError) -> str:
    """The sentence for people, or "" for any other error."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return ""
    return f"the disk is full{f' ({error.filename})' if error.filename else ''}"


def or_full_disk(error: SetupError, folder: Path) -> SetupError:
    """A full disk has many faces (a commit that fails, a process that ends): if it is one, that comes first."""
    free = shutil.disk_usage(folder).free
    if free >= LEAST_FREE or error.todo == FREE:
        return error
    return SetupError(
        error.step, f"the disk is full ({free // 1024} KiB free at {folder}): {error.why}", FREE, error.log
    )


_FULL = ("no space left", "disk quota exceeded", "error code enospc")  # tools' words; the last is npm's


class Step:
    """One named piece of set-up on a thread of its own: what it does now, how far it is, how long it took."""

    def __init__(self, name: str, logs: Path, work: Callable[[Step], None]) -> None:
        self.name, self.work = name, work
        self.log = logs / f"setup-{name.replace(' ', '-')}.log"
        self.todo = "see the log"
        self.text, self.count, self.total = "", 0, 0
        self.began = self.ended = 0.0
        self.error: SetupError | None = None
        self.process: subprocess.Popen[str] | None = None

    def __call__(self) -> None:
        self.began = time.monotonic()
        try:
            self.log.write_text("")
            self.work(self)
        except SetupError as error:
            self.error = error
        except (OSError, KeyError, ValueError, StopIteration, zipfile.BadZipFile) as error:
            full = disk_full(error) if isinstance(error, OSError) else ""
            self.error = SetupError(self.name, full or repr(error), FREE if full else self.todo, self.log)
        self.ended = time.monotonic()

    def say(self, text: str) -> None:
        self.text = text[:60]

    def run(self, argv: list[str], cwd: Path | None = None, required: bool = True, **env: str) -> None:
        """Runs one command into the log. Raises SetupError, with its last lines, if it fails and is required."""
        tail: list[str] = []
        with (
            self.log.open("a") as log,
            subprocess.Popen(
                argv,
                cwd=cwd,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process,
        ):
            self.process = process
            log.write(f"$ {' '.join(argv)}\n")
            assert process.stdout is not None
            for line in process.stdout:
                log.write(line)
                tail = [*tail[-39:], line.strip()] if line.strip() else tail
                self.observe(line.strip())
        if process.returncode and required:
            why = f"`{' '.join(argv[:4])} …` ended with status {process.returncode}: {told(tail)}"
            full = any(words in line.lower() for line in tail for words in _FULL)
            raise SetupError(
                self.name, f"the disk is full. {why}" if full else why, FREE if full else self.todo, self.log
            )

    def observe(self, line: str) -> None:
        """pip's and npm's own words are the progress."""
        if line.startswith("Collecting "):
            self.count += 1
            self.say(line[len("Collecting ") :].split(" ")[0])
        elif line.startswith("Installing collected"):
            self.count = self.total
            self.say("unpacking")
        elif line.startswith("> "):
            self.say(line[2:])

    def line(self) -> str:
        if self.ended:
            return f"{self.name}: {'failed' if self.error else 'done'} in {self.ended - self.began:.0f} s"
        far = f" {min(self.count, self.total)}/{self.total}" if self.total else ""
        return f"{self.name}{far} {self.text}".rstrip()


def told(tail: list[str]) -> str:
    """The two lines that name an error (pip and npm say more after them), else the last ones."""
    errors = [line for line in tail if line.lower().startswith(("error", "npm error"))]
    return " / ".join(errors[-2:] or tail[-3:])[:600]


class Progress:
    """One line that is rewritten on a terminal; elsewhere a new line when something changed, every 10 s at most."""

    def __init__(self) -> None:
        self.began = self.printed = time.monotonic()
        self.shown = ""
        self.tty = sys.stdout.isatty()

    def show(self, text: str, last: bool = False) -> None:
        now = time.monotonic()
        line = f"{now - self.began:4.0f} s  {text}"
        if self.tty:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{line[:width]}", end="\n" if last else "", flush=True)
        elif last or (text != self.shown and now - self.printed > 10):
            print(line, flush=True)
            self.printed, self.shown = now, text


def run_steps(steps: list[Step]) -> None:
    """All side by side. The first that fails ends the others and is raised; so does a signal to stop."""
    progress = Progress()
    earlier = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGHUP)]
    for number, handler in earlier:
        if handler is not signal.SIG_IGN:  # nohup
            signal.signal(number, signal.default_int_handler)
    threads = [threading.Thread(target=step, daemon=True) for step in steps]
    try:
        for thread in threads:
            thread.start()
        finished: set[str] = set()
        while len(finished) < len(steps):
            time.sleep(0.2)
            for step in steps:
                if step.ended and step.name not in finished:
                    finished.add(step.name)
                    progress.show(step.line(), last=True)
                if step.error:
                    raise step.error
            progress.show(" · ".join(step.line() for step in steps if not step.ended))
    finally:
        running = [step.process for step in steps if step.process and step.process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:  # the next start must not meet one that still writes
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
        for number, handler in earlier:
            signal.signal(number, handler)
