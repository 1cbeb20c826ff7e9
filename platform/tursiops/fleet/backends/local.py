"""Engines as processes on this host, each in a session of its own so that it outlives the node process.

Truth lies in the run folders, not in this object: a node process that starts again sees the same engines. Only exit
codes are known for children alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import structlog

import engines.api
import tursiops
from engines.api import EngineState, LaunchSpec, Local, Phase, RunDir
from tursiops.core import registry
from tursiops.fleet.backends import identity, probe
from tursiops.fleet.backends.base import LaunchError, Observation
from tursiops.settings.env import engine_environment

log = structlog.get_logger(__name__)

LOG_LIMIT = 16 * 1024 * 1024  # bytes; the older half of a run's words is kept in engine.log.1
_READABLE = (engines.api.API_VERSION, engines.api.API_VERSION - 1)


class LocalBackend:
    def __init__(self, root: Path) -> None:
        """`root` holds one run folder per instance."""
        self.root = root
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._proven: dict[str, int] = {}  # instance → epoch whose engine has shown that it knows the token
        self._answered: dict[str, float] = {}  # instance → monotonic time of its last good answer
        root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def runs(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir() if path.is_dir())

    def folder(self, instance_id: str) -> RunDir:
        return RunDir(self.root / instance_id)

    def observe(self, instance_id: str) -> Observation:
        run = self.folder(instance_id)
        token, epoch = _token_and_epoch(run)
        state = _state_of(run, instance_id, epoch)
        pid, started = self._process(run, state, epoch)
        child = self._children.get(instance_id)
        if child is not None and child.pid == pid:
            # A leader looks like a zombie before its last thread has ended; only then is its exit code known.
            exit_code = child.poll()
            alive = exit_code is None
        else:
            exit_code, alive = None, identity.is_alive(pid, started)
        seen = Observation(
            instance_id=instance_id,
            alive=alive,
            epoch=epoch,
            pid=pid,
            pid_start_time=started,
            exit_code=exit_code,
        )
        if state is not None:
            seen = _with_state(seen, state)
        if not seen.alive:
            return dataclasses.replace(seen, last_words=_last_line(run.log_path))
        return self._ask(seen, token) if seen.phase == Phase.READY and seen.port else seen

    def _ask(self, seen: Observation, token: str) -> Observation:
        """Health of an engine that calls itself ready. The token is asked for once per start."""
        now = time.monotonic()
        answer = probe.health(seen.host or "127.0.0.1", seen.port)
        if answer.ok and self._proven.get(seen.instance_id) != seen.epoch:
            if probe.proves_token(seen.host or "127.0.0.1", seen.port, token):
                self._proven[seen.instance_id] = seen.epoch
            else:
                answer = probe.Health(False, f"what answers on port {seen.port} does not know this start's token")
        if answer.ok:
            self._answered[seen.instance_id] = now
        since = now - self._answered.setdefault(seen.instance_id, now)
        return dataclasses.replace(
            seen,
            healthy=answer.ok,
            proven=self._proven.get(seen.instance_id) == seen.epoch,
            silent_s=since,
            reason=seen.reason if answer.ok else answer.reason,
        )

    def _process(self, run: RunDir, state: EngineState | None, epoch: int) -> tuple[int, float]:
        """The leader of the last start. A launch file of an older epoch means that the node died while starting it."""
        launch = identity.launch_of(run.path)
        if launch is not None and launch.epoch == epoch and launch.instance_id == run.path.name:
            return launch.pid, launch.pid_start_time
        if state is not None:
            return state.pid, state.pid_start_time
        found = identity.find_by_folder(run.path) if run.path.exists() else None
        return found or ((launch.pid, launch.pid_start_time) if launch else (0, 0.0))

    def start(self, spec: LaunchSpec, local: Local) -> None:
        run = self.folder(spec.instance_id)
        try:
            command = registry.engine(spec.engine).command(run.path)
        except Exception as error:  # an engine is a plug-in: whatever it raises is a reason, not a crash of the node
            raise LaunchError(f"Engine {spec.engine!r} gave no command: {error}") from error
        try:
            run.write_spec(spec, local)
            run.state_path.unlink(missing_ok=True)
            self._limit_log(run)
            child = _spawn(command, run, local.epoch)
        except OSError as error:
            raise LaunchError(f"The engine could not be started: {error}") from error
        self._children[spec.instance_id] = child
        self._answered.pop(spec.instance_id, None)
        with contextlib.suppress(psutil.NoSuchProcess):  # ended already: the next look says so
            started = identity.start_time(child.pid)
            launch = identity.Launch(spec.instance_id, local.epoch, child.pid, started)
            identity.write_launch(run.path, launch)
        log.info("engine.started", instance=spec.instance_id, pid=child.pid, epoch=local.epoch)

    def terminate(self, instance_id: str) -> None:
        """To the leader alone: it drains its own children."""
        seen = self.observe(instance_id)
        if seen.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(seen.pid, signal.SIGTERM)

    def kill(self, instance_id: str) -> None:
        run = self.folder(instance_id)
        _, epoch = _token_and_epoch(run)
        pid, started = self._process(run, _state_of(run, instance_id, epoch), epoch)
        identity.end_group(pid, started)
        child = self._children.get(instance_id)
        if child is not None and child.pid == pid:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(5)

    def forget(self, instance_id: str) -> None:
        shutil.rmtree(self.folder(instance_id).path, ignore_errors=True)
        self._children.pop(instance_id, None)
        self._proven.pop(instance_id, None)
        self._answered.pop(instance_id, None)

    def limit_logs(self) -> None:
        for instance_id in self.runs():
            self._limit_log(self.folder(instance_id))

    def _limit_log(self, run: RunDir) -> None:
        """The engine appends, so the file can be emptied under it."""
        with contextlib.suppress(FileNotFoundError):
            if run.log_path.stat().st_size > LOG_LIMIT:
                shutil.copyfile(run.log_path, run.log_path.with_name("engine.log.1"))
                os.truncate(run.log_path, 0)


def _spawn(command: list[str], run: RunDir, epoch: int) -> subprocess.Popen[bytes]:
    with run.log_path.open("ab") as out:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        out.write(f"--- start {epoch}, {moment} UTC ---\n".encode())
        out.flush()
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=run.path,
            env=engine_environment(python_path()),
            start_new_session=True,
        )


def python_path() -> list[str]:
    """Folders of our own packages: a clone's two roots, or the one site-packages of an installed wheel."""
    return list(dict.fromkeys(str(Path(module.__file__ or ".").parents[1]) for module in (engines.api, tursiops)))


def _token_and_epoch(run: RunDir) -> tuple[str, int]:
    """("", 0) where there is no readable spec: such a run is an orphan."""
    try:
        _, local = run.read_spec()
    except (OSError, ValueError, KeyError, TypeError):
        return "", 0
    return local.token, local.epoch


def _state_of(run: RunDir, instance_id: str, epoch: int) -> EngineState | None:
    """The engine's word, if it is of this start and of a version that this release reads."""
    state = run.read_state()
    if state is None or state.instance_id != instance_id or state.epoch != epoch or state.version not in _READABLE:
        return None
    return state


def _with_state(seen: Observation, state: EngineState) -> Observation:
    return dataclasses.replace(
        seen,
        phase=state.phase,
        progress=state.progress,
        reason=state.reason,
        error_code=state.error_code,
        host=state.host,
        port=state.port,
        facts=state.facts,
    )


def _last_line(path: Path) -> str:
    """The last line that an ended engine wrote, at most 200 characters."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    spoken = [line.strip() for line in lines if line.strip() and not line.startswith("--- start ")]
    return spoken[-1][:200] if spoken else ""
