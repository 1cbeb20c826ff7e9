"""The first steps on a fresh machine, with interpreters, indexes and folders that lack what a machine may lack."""

import ast
import hashlib
import http.server
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from tursiops import bootstrap
from tursiops.progress import SetupError, Step, run_steps

ROOT = Path(__file__).resolve().parents[3]
OURS = ("bootstrap.py", "installed.py", "progress.py")


@pytest.fixture
def index(monkeypatch):
    """A package index that speaks the simple JSON API, on a port of its own. `index[name] = bytes` publishes."""
    files: dict[str, bytes] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path.startswith("/files/"):
                body = files[self.path.split("/")[-1]]
            else:
                assert self.headers["Accept"] == "application/vnd.pypi.simple.v1+json"
                host = f"http://127.0.0.1:{self.server.server_address[1]}"
                body = json.dumps({"files": [{"filename": n, "url": f"{host}/files/{n}"} for n in files]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            return None

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_address[1]}/simple")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield files
    server.shutdown()
    server.server_close()


def crippled_python(folder: Path) -> Path:
    """An interpreter that, like Debian's without python3-venv, can't import ensurepip."""
    script = folder / "python3"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in "-c import venv"*) echo "No module named ensurepip" >&2; exit 1;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    script.chmod(0o755)
    return script


# -- what must hold before anything is installed ------------------------------------------------------------------


def test_the_bootstrap_needs_the_standard_library_alone():
    code = "import sys; sys.path.insert(0, 'platform'); import tursiops.bootstrap"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("name", ["manage.py", *(f"platform/tursiops/{name}" for name in OURS)])
def test_an_old_python_can_read_it_and_say_so(name):
    ast.parse((ROOT / name).read_text(), feature_version=(3, 9))


def test_an_old_python_hands_over_to_a_newer_one(monkeypatch, tmp_path):
    newer = tmp_path / "python3.12"
    newer.write_text("#!/bin/sh\n")
    newer.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    calls = []
    monkeypatch.setattr(os, "execv", lambda *words: calls.append(words) or sys.exit(0))
    with pytest.raises(SystemExit):
        bootstrap.check_python(ROOT)
    assert calls[0][0] == str(newer)
    newer.unlink()
    with pytest.raises(SetupError, match=r"3\.9\.2.*\n.*3\.11"):
        bootstrap.check_python(ROOT)


# -- an environment without venv ----------------------------------------------------------------------------------


def test_a_wheel_with_another_digest_is_refused(step, index, tmp_path):
    index["filelock-1-py3-none-any.whl"] = b"not what was pinned"
    good = hashlib.sha256(b"not what was pinned").hexdigest()
    path = bootstrap.fetch_wheel(step, "filelock-1-py3-none-any.whl", good, tmp_path)
    assert path.read_bytes() == b"not what was pinned"
    with pytest.raises(SetupError, match="sha256"):
        bootstrap.fetch_wheel(step, "filelock-1-py3-none-any.whl", "0" * 64, tmp_path)


def test_no_network_says_what_to_do(step, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(SetupError, match="python3-venv"):
        bootstrap.fetch_wheel(step, "filelock-1-py3-none-any.whl", "0" * 64, tmp_path)


def test_without_ensurepip_the_pinned_virtualenv_is_fetched_and_run(step, index, monkeypatch, tmp_path):
    """A stand-in module shows the way from index to command; the real virtualenv is in the slow test below."""
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("virtualenv/__init__.py", "")
        archive.writestr("virtualenv/__main__.py", "import os, sys\nos.makedirs(sys.argv[-1])\nprint(sys.argv[1:])\n")
    name = "virtualenv-20.36.1-py3-none-any.whl"
    index[name] = wheel.getvalue()
    monkeypatch.setattr(bootstrap, "VIRTUALENV", {name: hashlib.sha256(wheel.getvalue()).hexdigest()})
    monkeypatch.setattr(sys, "executable", str(crippled_python(tmp_path)))
    bootstrap.make_environment(step, tmp_path / "venv")
    assert (tmp_path / "venv").is_dir()
    assert "--no-download" in step.log.read_text()


@pytest.mark.slow
def test_the_pinned_virtualenv_makes_an_environment_with_pip(step, index, monkeypatch, tmp_path):
    folder = tmp_path / "wheels"
    pins = [f"{name.split('-')[0]}=={name.split('-')[1]}" for name in bootstrap.VIRTUALENV]
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), *pins]
    if subprocess.run(download, env=without_index(), check=False).returncode:
        pytest.skip("the package index can't be reached: virtualenv's wheels can't be fetched")
    for path in folder.iterdir():
        index[path.name] = path.read_bytes()
    monkeypatch.setattr(sys, "executable", str(crippled_python(tmp_path)))
    bootstrap.make_environment(step, tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    said = subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True, text=True, check=True)
    assert str(tmp_path / "venv") in said.stdout


def without_index() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PIP_INDEX_URL", "no_proxy")}


@pytest.mark.slow
def test_with_venv_at_hand_nothing_is_fetched(step, index, tmp_path):
    bootstrap.make_environment(step, tmp_path / "venv")  # the index is empty: a look there would fail
    assert (tmp_path / "venv" / "bin" / "python").exists()


# -- stamps -------------------------------------------------------------------------------------------------------


@pytest.fixture
def clone(tmp_path):
    root = tmp_path / "clone"
    (root / "webui" / "src").mkdir(parents=True)
    (root / "webui" / "node_modules").mkdir()
    (root / "webui" / "src" / "main.tsx").write_text("1")
    (root / "platform/tursiops/console/dist").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[project]\nname = 'x'\nversion = '1'\n")
    (root / "constraints.txt").write_text("torch==2.13.0\nthing==1\n# the tests' own\npytest==9\n")
    return root


def test_a_stamp_holds_until_its_sources_change(clone):
    stamp = clone / "stamp.json"
    assert bootstrap.stale(stamp, bootstrap.dependencies_hash(clone))
    bootstrap.write_stamp(stamp, bootstrap.dependencies_hash(clone), ("test",))
    assert not bootstrap.stale(stamp, bootstrap.dependencies_hash(clone))
    assert not bootstrap.stale(stamp, bootstrap.dependencies_hash(clone), ("test",))
    (clone / "constraints.txt").write_text("thing==2\n")
    assert bootstrap.stale(stamp, bootstrap.dependencies_hash(clone))


def test_tests_need_an_environment_that_has_their_packages(clone):
    stamp = clone / "stamp.json"
    bootstrap.write_stamp(stamp, bootstrap.dependencies_hash(clone))
    assert not bootstrap.stale(stamp, bootstrap.dependencies_hash(clone))
    assert bootstrap.stale(stamp, bootstrap.dependencies_hash(clone), ("test",))


def test_a_broken_stamp_is_no_stamp(clone):
    (clone / "stamp.json").write_text("{")
    assert bootstrap.stale(clone / "stamp.json", "x")


def test_the_console_is_built_again_for_its_sources_only(clone):
    before = bootstrap.console_hash(clone)
    (clone / "webui" / "node_modules" / "x.js").write_text("2")
    assert bootstrap.console_hash(clone) == before
    (clone / "webui" / "src" / "main.tsx").rename(clone / "webui" / "src" / "other.tsx")
    assert bootstrap.console_hash(clone) != before


# -- steps that fail ----------------------------------------------------------------------------------------------


def test_a_dependency_that_is_missing_is_named_with_the_log(clone, step, monkeypatch):
    python = clone / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(SetupError) as failed:
        bootstrap.install(step, clone, python, (), cpu=False)
    assert "No matching distribution" in str(failed.value)
    assert "pip config list" in str(failed.value)
    assert str(step.log) in str(failed.value)
    assert step.total == 2


@pytest.mark.parametrize(("said", "found"), [("v20.20.2", (20, 20, 2)), ("v18.19.0", (18, 19, 0)), ("what", (0,))])
def test_the_version_of_node(tmp_path, said, found):
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\necho {said}\n")
    node.chmod(0o755)
    assert bootstrap.node_version(str(node)) == found


def test_the_first_failure_ends_the_other_steps(tmp_path, capsys):
    def fail(step: Step) -> None:
        step.run([sys.executable, "-c", "print('why it broke'); raise SystemExit(4)"])

    slow = Step("slow", tmp_path, lambda step: step.run([sys.executable, "-c", "import time; time.sleep(60)"]))
    with pytest.raises(SetupError, match=r"broken failed: .*status 4.*why it broke"):
        run_steps([slow, Step("broken", tmp_path, fail)])
    assert slow.process is not None
    assert slow.process.wait(5) != 0
    assert "broken: failed in" in capsys.readouterr().out


# -- the command line ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_stop_ends_the_steps_too(tmp_path, number):
    """Else pip would go on in an environment that the next start works in."""

    def work(step):
        step.run(["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"])

    step = Step("long", tmp_path, work)
    ours = signal.signal(number, signal.SIG_DFL)  # whoever runs us may ignore it, as nohup does
    before = signal.getsignal(number)
    threading.Timer(1.0, os.kill, (os.getpid(), number)).start()
    with pytest.raises(KeyboardInterrupt):
        run_steps([step])
    assert signal.getsignal(number) is before
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    signal.signal(number, ours)


def test_flags_of_up():
    options = bootstrap.up_parser().parse_args(["--port", "8123", "--data-dir", "/tmp/x", "--no-demo", "--cpu"])
    assert (options.port, options.data_dir, options.no_demo, options.cpu) == (8123, Path("/tmp/x"), True, True)
    with pytest.raises(SystemExit):
        bootstrap.up_parser().parse_args(["--cpu", "--gpu"])
    with pytest.raises(SystemExit):
        bootstrap.up_parser().parse_args(["--prot", "1"])


def test_tests_hand_their_arguments_to_pytest(monkeypatch, tmp_path):
    monkeypatch.setattr(bootstrap, "set_up", lambda root, venv, *rest, **more: venv / "bin" / "python")
    monkeypatch.setattr(os, "chdir", lambda _: None)
    calls = []
    monkeypatch.setattr(os, "execv", lambda *words: calls.append(words) or sys.exit(0))
    with pytest.raises(SystemExit):
        bootstrap.test(["--venv", str(tmp_path), "-k", "gateway and not slow", "-x", "--help"], ROOT)
    argv = calls[0][1]
    assert argv[0] == str(tmp_path / "bin" / "python")
    assert argv[1:] == ["-m", "pytest", "-k", "gateway and not slow", "-x", "--help"]


def test_other_commands_move_into_the_environment(clone, monkeypatch):
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    calls = []
    monkeypatch.setattr(os, "execv", lambda *words: calls.append(words) or sys.exit(0))
    with pytest.raises(SystemExit):
        bootstrap.django(["migrate", "--plan"], clone)
    assert calls == [(python, [str(python), str(clone / "manage.py"), "migrate", "--plan"])]


def test_a_wheel_has_no_tests_to_run(capsys):
    assert bootstrap.main(["test"], None) == 1
    assert "in a clone" in capsys.readouterr().err


def test_before_set_up_django_commands_point_to_up(tmp_path):
    shutil.copytree(ROOT / "platform" / "tursiops", tmp_path / "platform" / "tursiops", ignore=only_bootstrap)
    shutil.copy(ROOT / "manage.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "manage.py", "migrate"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "manage.py up" in done.stderr


def only_bootstrap(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name not in ("__init__.py", *OURS)]
