"""The wheel, installed into an empty environment: `tursiops up` from outside the clone, with no Node in reach."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.running import ROOT, Running

pytestmark = [pytest.mark.slow, pytest.mark.embedded, pytest.mark.timeout(400)]
SOURCES = ["platform/tursiops", "engines", "plugins", "evaluation"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy: a `build/` folder in the clone would bring yesterday's files along."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    dist = source / "platform/tursiops/console/dist"
    if not (dist / "index.html").exists():
        pytest.skip("the console is not built: `python3 manage.py test` builds it")
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(out), str(source)]
    subprocess.run(build, check=True)
    return next(out.glob("tursiops-*.whl"))


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """An environment that holds the wheel, and sees the packages of this one (torch is not installed twice)."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    purelib = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (Path(purelib) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, "--ignore-installed", str(wheel)], check=True)
    return python


def test_it_holds_what_runs_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"tursiops", "engines", "plugins", "evaluation"}
    for needed in (
        "tursiops/console/dist/index.html",
        "tursiops/accounts/migrations/0001_initial.py",
        "tursiops/gateway/reserve.lua",
        "tursiops/py.typed",
        "engines/native/serve/__main__.py",
    ):
        assert needed in names


def test_every_file_of_the_sources_is_in_it(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", *SOURCES], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git clone")
    expected = {name.removeprefix("platform/") for name in tracked.stdout.split() if (ROOT / name).exists()}
    assert expected <= names


def test_up_from_outside_the_clone_serves_the_console(python, tmp_path):
    place = subprocess.run(
        [str(python), "-c", "import tursiops; print(tursiops.__file__)"],
        cwd=tmp_path,
        env={"PATH": str(python.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert place.stdout.startswith(str(python.parent.parent)), place.stdout
    tools = tmp_path / "bin"  # a PATH without node
    tools.mkdir()
    running = Running(
        tmp_path / "data", "--no-demo", argv=[str(python.parent / "tursiops"), "up"], paths="", PATH=str(tools)
    )
    with running as up:
        up.wait_for("Tursiops is up", 200)
        page = httpx.get(up.url, timeout=20)
        assert page.status_code == 200
        assert '<div id="root">' in page.text
        script = page.text.split('<script type="module" crossorigin src="')[1].split('"')[0]
        code = httpx.get(up.url + script, timeout=20)
        assert code.status_code == 200
        assert "javascript" in code.headers["content-type"]
        for process in up.children().values():
            assert str(ROOT / "platform") not in process.environ().get("PYTHONPATH", "")
    assert os.listdir(tools) == []
