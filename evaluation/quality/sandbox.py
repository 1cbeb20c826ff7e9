"""Programs that a model wrote, run where they can do nothing: one child each, which before it runs them gives up every
system call but those of computing. It has no files, no network, no other processes, and limits of time and memory.

Linux on x86-64 and ARM only (seccomp, https://docs.kernel.org/userspace-api/seccomp_filter.html); elsewhere nothing is
run. A program passes when the child's own driver says so after its end, with a secret that the driver reads only then:
one that ends the process early, or writes "passed" wherever it can, has not passed. This is no defence against one that
sets out to forge its verdict: it shares a process with the driver, and could find and read the secret's descriptor.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_CHILD = Path(__file__).with_name("sandbox_child.py")
MACHINES = ("x86_64", "aarch64")
SECONDS = 10.0
MEMORY = 512 * 2**20
OUTPUT = 1 << 16
"""Bytes that are read of what a program prints; the rest is thrown away."""


class SandboxUnavailable(Exception):
    """Nothing can be run safely here; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """passed: it came to its end. reason: "" for one that did, else the exception or the limit. printed: the beginning
    of its output, for people."""

    passed: bool
    reason: str
    printed: str = ""


def run(program: str, *, seconds: float = SECONDS, memory: int = MEMORY) -> Outcome:
    """program: Python of the standard library. seconds: of the clock, and of the processor. memory: bytes of address
    space. Raises SandboxUnavailable."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise SandboxUnavailable(f"programs are run on Linux ({', '.join(MACHINES)}) only: this is {sys.platform}")
    nonce = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        answer, told = map(stack.enter_context, _pipe())
        secret, given = map(stack.enter_context, _pipe())
        given.write(nonce.encode())
        given.close()  # it lies in the pipe until the driver reads it
        process = _start(told.fileno(), secret.fileno())
        told.close()
        printed, late = _follow(process, {"program": program, "memory": memory}, seconds)
        said = answer.read(OUTPUT)
    return _outcome(said, nonce, process.returncode, late, seconds, printed)


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    """Its two ends: to read, to write."""
    read, write = os.pipe()
    return open(read, "rb"), open(write, "wb")


def _start(told: int, secret: int) -> subprocess.Popen[bytes]:
    """-I -S: nothing of the environment, the working folder or installed packages reaches it."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", str(_CHILD), str(told), str(secret)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(told, secret),
        env={},
        cwd="/",
        start_new_session=True,
    )


def _follow(process: subprocess.Popen[bytes], spec: dict[str, object], seconds: float) -> tuple[bytes, bool]:
    """What it printed, and whether it took too long. It is gone afterwards."""
    assert process.stdin is not None
    assert process.stdout is not None
    printed = bytearray()
    reader = threading.Thread(target=_read, args=(process.stdout, printed), daemon=True)
    reader.start()
    late = False
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps({**spec, "seconds": seconds}).encode())
            process.stdin.close()
        process.wait(seconds + 5)  # the child's own clock starts once it is ready
    except subprocess.TimeoutExpired:
        late = True
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join()
        process.stdout.close()
    return bytes(printed), late


def _read(stream: IO[bytes], into: bytearray) -> None:
    """To its end, so that a program which prints on and on is not held up: its time runs out."""
    while chunk := stream.read(1 << 14):
        into += chunk[: max(0, OUTPUT - len(into))]


def _outcome(said: bytes, nonce: str, code: int, late: bool, seconds: float, printed: bytes) -> Outcome:
    shown = printed.decode(errors="replace")
    for line in said.decode(errors="replace").splitlines():
        name, _, rest = line.partition(" ")
        if name == nonce:
            return Outcome(rest == "passed", "" if rest == "passed" else rest, shown)
        if name == "unavailable":
            raise SandboxUnavailable(f"programs can't be run safely here: {rest}")
    if late or -code in (signal.SIGALRM, signal.SIGXCPU, signal.SIGVTALRM):
        return Outcome(False, f"it took longer than {seconds:g} s", shown)
    if code == 0:
        return Outcome(False, "it ended the process before its end", shown)
    name = signal.Signals(-code).name if code < 0 else f"status {code}"
    return Outcome(False, f"the process ended with {name}", shown)
