"""Programs in the sandbox: what they may do, and what comes of trying more."""

import os
import resource
import signal
import socket
import time

import pytest

from evaluation.quality import sandbox, sandbox_child
from evaluation.quality.sandbox import run


def test_a_program_that_computes_passes():
    outcome = run("import heapq, math\nassert math.gcd(12, 18) == heapq.nsmallest(1, [6, 7])[0]\nprint('fine')")
    assert outcome.passed
    assert outcome.printed == "fine\n"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("assert 1 == 2, 'no'", "AssertionError: no"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def f(:", "SyntaxError"),
        ("import numpy", "ModuleNotFoundError"),
        ("def f(): return f()\nf()", "RecursionError"),
    ],
)
def test_one_that_fails_says_why(program, reason):
    outcome = run(program)
    assert not outcome.passed
    assert outcome.reason.startswith(reason)


@pytest.mark.parametrize(
    "program",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "raise SystemExit",
        "print('passed')",
        "import os\nfor fd in range(3, 8):\n try: os.write(fd, b'passed\\n')\n except OSError: pass\nos._exit(0)",
    ],
)
def test_ending_early_or_saying_so_is_no_pass(program):
    assert run(program).passed == (program == "print('passed')"), "the only one that came to its end"
    assert not run(f"{program}\nassert False").passed


def test_frames_around_a_program_hold_no_secret_to_pass_with():
    forged = """
import os, sys
frame = sys._getframe()
while frame is not None:
    for value in list(frame.f_locals.values()):
        if isinstance(value, (str, bytes)) and len(value) == 32:
            value = value.encode() if isinstance(value, str) else value
            for fd in range(3, 12):
                try:
                    os.write(fd, value + b" passed\\n")
                except OSError:
                    pass
    frame = frame.f_back
os._exit(0)
"""
    assert run(forged).reason == "it ended the process before its end"


@pytest.fixture
def listening():
    """A port that would answer."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0.1)
        yield server


def test_no_network(listening):
    port = listening.getsockname()[1]
    outcome = run(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2).send(b'x')")
    assert not outcome.passed
    raw = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
assert libc.socket(2, 1, 0) == -1 and ctypes.get_errno() == 1
assert libc.syscall(41, 2, 1, 0) == -1
assert libc.connect(0, b'\\x02\\x00' + ({port}).to_bytes(2, 'big') + bytes([127, 0, 0, 1]) + bytes(8), 16) == -1
"""
    assert run(raw).passed, "every way down to the system call is refused"
    with pytest.raises(TimeoutError):
        listening.accept()


@pytest.mark.parametrize(
    "attempt",
    [
        "open('/etc/passwd').read()",
        "open('{place}/made', 'w').write('x')",
        "import os; os.listdir('/')",
        "import os; os.unlink('{place}/there')",
        "import os; os.rename('{place}/there', '{place}/gone')",
        "import os; os.chmod('{place}/there', 0o777)",
        "import os; os.mkdir('{place}/made')",
        "import os; os.symlink('/etc', '{place}/made')",
        "import os; os.system('touch {place}/made') == 0 or 1 / 0",
        "import subprocess; subprocess.run(['touch', '{place}/made'], check=True)",
        "import os; os.fork()",
        "import os; os.execv('/bin/sh', ['sh', '-c', 'touch {place}/made'])",
        "import threading; t = threading.Thread(target=print); t.start()",
        "import os; os.kill({pid}, 9)",
        "import os; os.setuid(0)",
        "import os; os.ptrace = 1; import ctypes; ctypes.CDLL(None).ptrace(16, {pid}, 0, 0) == 0 or 1 / 0",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "import ctypes; ctypes.CDLL(None).mount(b'none', b'/', b'tmpfs', 0, None) == 0 or 1 / 0",
        "import ctypes; ctypes.CDLL(None).unshare(0x10000000) == 0 or 1 / 0",
    ],
)
def test_nothing_of_the_machine_is_in_reach(attempt, tmp_path):
    (tmp_path / "there").write_text("as it was")
    outcome = run(attempt.format(place=tmp_path, pid=os.getpid()))
    assert not outcome.passed, attempt
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there").read_text() == "as it was"


@pytest.mark.parametrize(
    ("program", "seconds"), [("while True: pass", 0.5), ("while True: pass", 1), ("import time; time.sleep(60)", 0.5)]
)
def test_time_is_limited(program, seconds):
    began = time.monotonic()
    outcome = run(program, seconds=seconds)
    assert outcome.reason == f"it took longer than {seconds} s"
    assert time.monotonic() - began < 5


def test_time_is_limited_for_one_that_ignores_the_clock():
    program = "import signal, time\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass"
    assert run(program, seconds=0.5).reason == "it took longer than 0.5 s"


def test_the_clock_strikes_before_the_processors_limits(monkeypatch):
    """Both at one second told of an endless loop as SIGKILL, on a machine that is idle."""
    limits = {}
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)
    sandbox_child.limit(1, 2**29)
    assert limits[resource.RLIMIT_CPU] == (2, 3)


def test_memory_is_limited():
    outcome = run("x = bytearray(2**32)", memory=2**28)
    assert outcome.reason == "MemoryError"


def test_output_is_limited_and_holds_nothing_up():
    outcome = run("for _ in range(300): print('x' * 10000)")
    assert outcome.passed
    assert len(outcome.printed) == sandbox.OUTPUT


def test_environment_and_standard_input_are_empty(monkeypatch):
    monkeypatch.setenv("TURSIOPS_SECRET", "s3cret")
    assert run("import os, sys\nassert 'TURSIOPS_SECRET' not in os.environ\nassert sys.stdin.read() == ''").passed


def test_another_machine_runs_nothing(monkeypatch):
    monkeypatch.setattr(sandbox.sys, "platform", "darwin")
    with pytest.raises(sandbox.SandboxUnavailable, match="Linux"):
        run("pass")
