"""Python environments of back ends whose packages must not meet ours: made on first use, one for all jobs.

Such an environment lies over the one that we run in: what ours has in the right version (torch above all, some GB, of
the build for this machine) is used from there, everything else is installed beside it. Every version is pinned. A
download that was cut off goes on at the package it had reached; what was installed is verified each time.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from engines.api import size_text
from engines.protocol import ChildError

Say = Callable[[float, str], None]
"""Share done, 0…1, and what is being done."""

_UNREACHABLE = re.compile(
    r"No matching distribution found|Failed to establish a new connection|ConnectionError|Temporary failure in name "
    r"resolution|Network is unreachable|ProxyError|Max retries exceeded|Connection refused|ReadTimeout"
)
_DOWNLOADS = 0.8  # of the progress; the rest is installing


@dataclass(frozen=True, slots=True)
class Environment:
    """pins: "name==version", all that is needed and nothing else, as pip froze it. needs: bytes on disk, at most."""

    name: str
    pins: tuple[str, ...]
    imports: tuple[str, ...]
    needs: int

    @property
    def folder(self) -> Path:
        """Another Python, another torch or other pins have another folder."""
        torch = _versions([sysconfig.get_paths()["purelib"]]).get("torch", "")
        key = hashlib.sha256(json.dumps([self.pins, sys.version_info[:2], torch]).encode()).hexdigest()
        return root() / f"{self.name}-{key[:12]}"

    @property
    def python(self) -> Path:
        return self.folder / "env" / "bin" / "python"

    def wrong(self) -> list[str]:
        """Pins that are not there in that version; all of them where there is no environment."""
        if not self.python.exists():
            return list(self.pins)
        found = _versions([str(_site(self.folder)), *_ours()])
        return [pin for pin in self.pins if found.get(_key(pin)) != pin.partition("==")[2]]

    @property
    def ready(self) -> bool:
        """Whether nothing is left to do."""
        return (self.folder / "stamp").is_file() and not self.wrong()


def pins_of(file: Path) -> tuple[str, ...]:
    """The lines of a requirements file that pin something."""
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    return tuple(line for line in lines if line)


def root() -> Path:
    return Path("~/.cache/tursiops/environments").expanduser()


def ensure(environment: Environment, say: Say) -> Path:
    """Its Python; made where it is not there. Two jobs at once make one. Raises ChildError: no_index, disk_full,
    environment_failed."""
    if environment.ready:
        return environment.python
    with _only_one(environment, say):
        if not environment.ready:
            _make(environment, say)
    return environment.python


@contextmanager
def _only_one(environment: Environment, say: Say) -> Iterator[None]:
    folder = environment.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(0.0, f"another job makes the environment {environment.name}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(environment: Environment, say: Say) -> None:
    folder = environment.folder
    (folder / "stamp").unlink(missing_ok=True)
    _check_space(environment)
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    _create(environment)
    missing = environment.wrong()
    for place, pin in enumerate(missing):
        say(_DOWNLOADS * place / len(missing), f"environment {environment.name}: {pin}, {place + 1} of {len(missing)}")
        _download(environment, pin, wheels)
    say(_DOWNLOADS, f"environment {environment.name}: installing {len(missing)} packages")
    files = [str(_downloaded(wheels, pin)) for pin in missing]
    if files:  # those that an attempt before this one left half unpacked are written again
        argv = ["install", "--no-index", "--no-deps", "--no-compile", "--ignore-installed", *files]
        _pip(environment, argv, "installing")
    _verify(environment)
    (folder / "stamp").touch()
    shutil.rmtree(wheels, ignore_errors=True)
    say(1.0, f"environment {environment.name} is ready")


def _create(environment: Environment) -> None:
    """A bare environment that finds our packages after its own. Anew where the last attempt got no further than
    installing: what lay half unpacked is gone then; what was downloaded is not."""
    place = environment.folder / "env"
    shutil.rmtree(place, ignore_errors=True)
    _call(environment, [sys.executable, "-m", "venv", "--without-pip", str(place)], "making it")
    (_site(environment.folder) / "tursiops_below.pth").write_text("\n".join(_ours()) + "\n")


def _site(folder: Path) -> Path:
    return folder / "env" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def _ours() -> list[str]:
    paths = sysconfig.get_paths()
    return list(dict.fromkeys([paths["purelib"], paths["platlib"]]))


def _versions(places: Sequence[str]) -> dict[str, str]:
    """Name → version; of a package that is there twice, the one that would be imported. A local build ("+cpu") counts
    as the version that it is of."""
    found: dict[str, str] = {}
    for each in distributions(path=list(places)):
        found.setdefault(_key(each.metadata["Name"] or ""), each.version.partition("+")[0])
    return found


def _key(pin: str) -> str:
    """Of a pin, or a name, as indexes compare them."""
    return re.sub(r"[-_.]+", "-", re.split(r"[=\[ ]", pin)[0]).lower()


def _download(environment: Environment, pin: str, wheels: Path) -> None:
    if _downloaded(wheels, pin) is not None:
        return
    with_name = wheels / "part"
    shutil.rmtree(with_name, ignore_errors=True)
    _pip(environment, ["wheel", "--no-deps", "-w", str(with_name), pin], f"fetching {pin}")
    for wheel in with_name.glob("*.whl"):
        os.replace(wheel, wheels / wheel.name)


def _downloaded(wheels: Path, pin: str) -> Path | None:
    name, _, version = pin.partition("==")
    for wheel in wheels.glob("*.whl"):
        parts = wheel.name.split("-")
        if _key(parts[0]) == _key(name) and parts[1] == version:
            return wheel
    return None


def _pip(environment: Environment, argv: list[str], doing: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(environment.python), "--disable-pip-version-check"]
    _call(environment, [*pip, "--no-input", "--quiet", *argv], doing)


def _call(environment: Environment, argv: list[str], doing: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return
    said = (done.stderr or done.stdout).strip()
    last = "\n".join(line for line in said.splitlines() if line.strip())[-600:]
    if "No space left" in said:
        raise ChildError("disk_full", f"environment {environment.name}: the disk is full while {doing}", _ROOM)
    if _UNREACHABLE.search(said):
        raise ChildError(
            "no_index",
            f"environment {environment.name}: no package index in reach has what is needed ({doing}): {last}",
            "Connect the machine or name a mirror (PIP_INDEX_URL); the back end native needs no packages.",
        )
    raise ChildError(
        "environment_failed", f"environment {environment.name}: {doing} failed: {last}", "Choose the back end native."
    )


_ROOM = "Free some space, or choose the back end native, which needs no environment."


def _check_space(environment: Environment) -> None:
    environment.folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(environment.folder).free
    if free < environment.needs:
        raise ChildError(
            "disk_full",
            f"environment {environment.name} needs up to {size_text(environment.needs)}; {size_text(free)} are free at "
            f"{environment.folder}",
            _ROOM,
        )


def _verify(environment: Environment) -> None:
    wrong = environment.wrong()
    if wrong:
        raise ChildError("environment_failed", f"environment {environment.name}: not there after all: {wrong[:5]}")
    imports = "; ".join(f"import {name}" for name in environment.imports)
    _call(environment, [str(environment.python), "-c", imports], f"importing {', '.join(environment.imports)}")
