"""The node's loop with real processes: start, follow, restart with back-off, drain, adopt, sweep."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time

import msgspec
import psutil
import pytest
from tursiops.core.audit import Actor
from tursiops.core.models import Event
from tursiops.deployments.models import Desired, InstanceState
from tursiops.deployments.services import instance_restart
from tursiops.fleet.agent import mark_stopped_with_platform, stop_engines
from tursiops.fleet.backends import identity, probe
from tursiops.secrets import open_instance_token

from engines.api import API_VERSION, EngineState, Phase
from tests import factories
from tests.processes import alive


def test_start_to_ready(host, scheduled):
    row = host.until_state(scheduled(load_s=0.2), InstanceState.READY)
    assert row.epoch == 1
    assert row.ready_at is not None
    assert row.facts == {"max_model_len": 64}
    assert probe.proves_token(row.address, row.port, open_instance_token(row.token_encrypted))
    kinds = list(Event.objects.values_list("kind", flat=True))
    assert kinds == ["instance.starting", "instance.ready"]
    assert Event.objects.last().payload["state"] == "ready"


def test_no_secret_in_argv_or_environment_and_private_files(host, scheduled, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", os.environ["DATABASE_URL"])
    row = host.until_state(scheduled(), InstanceState.READY)
    token = open_instance_token(row.token_encrypted)
    process = psutil.Process(row.pid)
    assert token not in " ".join(process.cmdline())
    environment = process.environ()
    assert token not in environment.values()
    assert not {name for name in environment if name.startswith("TURSIOPS_") or name.endswith("_URL")}
    run = host.backend.folder(str(row.pk))
    assert run.path.stat().st_mode & 0o777 == 0o700
    assert run.spec_path.stat().st_mode & 0o777 == 0o600
    assert os.getsid(row.pid) == row.pid


def test_killed_engine_starts_again_after_a_pause(host, scheduled):
    row = host.until_state(scheduled(), InstanceState.READY)
    before = row.pid
    os.kill(before, signal.SIGKILL)
    row = host.until_state(row, InstanceState.SCHEDULED)
    assert row.restarts == 1
    assert row.next_start_at is not None
    assert "SIGKILL" in row.reason
    assert "Start 2 of 3 follows" in row.reason
    row = host.until_state(row, InstanceState.READY)
    assert (row.epoch, row.restarts) == (2, 1)
    assert row.pid != before


def test_case_10_dead_engine_is_seen_at_the_next_look(host, scheduled):
    row = host.until_state(scheduled(), InstanceState.READY)
    assert not host.agent.something_ended()
    os.kill(row.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while not host.agent.something_ended():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    host.agent.tick()
    row.refresh_from_db()
    assert row.state != InstanceState.READY


def test_case_19_too_many_failures_end_with_a_next_step(host, scheduled):
    row = host.until_state(scheduled(exit_code=3), InstanceState.FAILED)
    assert row.restarts == 3
    assert "exit code 3: the last words of the engine" in row.reason
    assert "press Restart" in row.reason
    host.agent.tick()
    row.refresh_from_db()
    assert row.state == InstanceState.FAILED
    assert row.epoch == 3


def test_failure_that_a_restart_cannot_mend_is_not_repeated(host, scheduled):
    row = host.until_state(scheduled(fail="missing_tensor"), InstanceState.FAILED)
    assert row.epoch == 1
    assert row.reason.startswith("The model file can't be used.")


def test_restart_forgets_failures(host, scheduled, member):
    row = host.until_state(scheduled(exit_code=3), InstanceState.FAILED)
    instance_restart(instance=row, actor=Actor("alice"))
    row.refresh_from_db()
    assert (row.state, row.restarts) == (InstanceState.SCHEDULED, 0)
    host.until_state(row, InstanceState.STARTING)


def test_restart_of_a_ready_engine_drains_it_first(host, scheduled):
    row = host.until_state(scheduled(), InstanceState.READY)
    before = row.pid
    instance_restart(instance=row, actor=Actor("alice"))
    host.until_state(row, InstanceState.DRAINING)
    row = host.until_state(row, InstanceState.READY)
    assert row.pid != before
    assert row.restarts == 0
    assert not alive(before)


def test_failures_are_forgotten_once_it_has_settled(host, scheduled):
    row = scheduled()
    row.restarts = 2
    row.save()
    row = host.until_state(row, InstanceState.READY)
    host.agent.limits = dataclasses.replace(host.limits, settled_s=0.0)
    host.agent.tick()
    row.refresh_from_db()
    assert row.restarts == 0


def test_missing_file_is_named(host, scheduled, settings, tmp_path):
    row = scheduled()
    settings.STORE_DIR = tmp_path / "elsewhere"
    row = host.until_state(row, InstanceState.FAILED)
    assert "is not in the store of node" in row.reason


def test_stop_drains(host, scheduled):
    row = host.until_state(scheduled(drain_s=0.3), InstanceState.READY)
    pid = row.pid
    type(row).objects.filter(pk=row.pk).update(desired=Desired.STOPPED)
    host.until_state(row, InstanceState.DRAINING)
    assert alive(pid)
    host.until_state(row, InstanceState.STOPPED)
    assert row.pid == 0


@pytest.mark.slow
def test_case_45_stop_really_stops_processes(host, scheduled):
    """An engine that ignores SIGTERM, with a child of its own: both are gone after the drain limit."""
    row = host.until_state(scheduled(ignore_term=True, helper=True), InstanceState.READY)
    processes = [psutil.Process(row.pid), *psutil.Process(row.pid).children()]
    assert len(processes) == 2
    type(row).objects.filter(pk=row.pk).update(desired=Desired.STOPPED)
    host.until_state(row, InstanceState.STOPPED)
    assert psutil.wait_procs(processes, timeout=5)[1] == []


def test_children_of_a_killed_engine_do_not_stay(host, scheduled):
    row = host.until_state(scheduled(helper=True), InstanceState.READY)
    children = psutil.Process(row.pid).children()
    assert children
    os.kill(row.pid, signal.SIGKILL)
    host.until_state(row, InstanceState.SCHEDULED)
    assert psutil.wait_procs(children, timeout=5)[1] == []


@pytest.mark.slow
def test_unanswering_engine_leaves_the_rotation_and_is_ended_in_the_end(host, scheduled, monkeypatch):
    row = host.until_state(scheduled(), InstanceState.READY)
    os.kill(row.pid, signal.SIGSTOP)
    host.agent.limits = dataclasses.replace(host.limits, hung_s=5.0)
    monkeypatch.setattr(probe.health, "__defaults__", (0.2,))
    row = host.until_state(row, InstanceState.UNREACHABLE)
    assert "does not answer" in row.reason
    row = host.until_state(row, InstanceState.SCHEDULED)
    assert row.restarts == 1


def test_case_16_restarted_node_adopts_its_engines(host, scheduled):
    row = host.until_state(scheduled(), InstanceState.READY)
    pid = row.pid
    host.restart()
    host.agent.tick()
    row.refresh_from_db()
    assert (row.state, row.pid, row.epoch) == (InstanceState.READY, pid, 1)
    type(row).objects.filter(pk=row.pk).update(state=InstanceState.UNREACHABLE)
    host.until_state(row, InstanceState.READY)
    assert row.pid == pid


def test_case_12_orphans_are_stopped_when_their_row_is_gone(host, scheduled):
    row = host.until_state(scheduled(), InstanceState.READY)
    process = psutil.Process(row.pid)
    row.delete()
    host.restart()
    host.until(lambda: not host.backend.runs())
    assert not alive(process.pid)


def test_case_12_engine_of_an_earlier_epoch_is_replaced(host, scheduled):
    """The row moved on while the node was away: what runs is not what the row stands for."""
    row = host.until_state(scheduled(), InstanceState.READY)
    pid = row.pid
    type(row).objects.filter(pk=row.pk).update(epoch=7, state=InstanceState.UNREACHABLE)
    host.restart()
    row = host.until_state(row, InstanceState.READY)
    assert row.epoch == 8
    assert row.pid != pid


def test_node_that_died_between_start_and_note_finds_its_engine(host, scheduled):
    row = host.until_state(scheduled(load_s=60), InstanceState.STARTING)
    run = host.backend.folder(str(row.pk))
    host.until(lambda: run.read_state() is not None)
    pid = run.read_state().pid
    (run.path / "launch.json").unlink()
    run.state_path.unlink()
    host.restart()
    seen = host.backend.observe(str(row.pk))
    assert (seen.alive, seen.pid) == (True, pid)


def test_reused_pid_is_not_trusted(host, scheduled):
    """Both files name a living process that started at another time: a stranger with a pid that once was ours."""
    row = host.until_state(scheduled(), InstanceState.READY)
    run = host.backend.folder(str(row.pk))
    host.backend.kill(str(row.pk))
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        then = psutil.Process(stranger.pid).create_time() - 100
        identity.write_launch(run.path, identity.Launch(str(row.pk), row.epoch, stranger.pid, then))
        state = run.read_state()
        run.write_state(msgspec.structs.replace(state, pid=stranger.pid, pid_start_time=then))
        host.restart()
        host.until_state(row, InstanceState.SCHEDULED)
        assert stranger.poll() is None, "a stranger was killed"
    finally:
        stranger.kill()
        stranger.wait()


def test_stranger_on_the_port_is_not_trusted(host, scheduled):
    """Something answers /health with 200, but does not know the token of this start."""
    row = scheduled()
    row = host.until_state(row, InstanceState.READY)
    other = host.until_state(_another(row), InstanceState.READY)
    run = host.backend.folder(str(row.pk))
    run.write_state(msgspec.structs.replace(run.read_state(), port=other.port))
    host.restart()
    seen = host.backend.observe(str(row.pk))
    assert seen.alive
    assert not seen.proven
    assert not seen.healthy
    assert "does not know this start's token" in seen.reason


def _another(row):
    return factories.make_instance(row.deployment, node=row.node, state=InstanceState.SCHEDULED)


def test_files_of_the_previous_release_are_adopted(host, scheduled):
    row = host.until_state(scheduled(), InstanceState.READY)
    run = host.backend.folder(str(row.pk))
    written = msgspec.json.decode(run.spec_path.read_bytes())
    written["spec"]["version"] = API_VERSION - 1
    del written["spec"]["draft"], written["local"]["draft_paths"]  # which version 2 brought
    run.spec_path.write_bytes(msgspec.json.encode(written))
    fields = msgspec.to_builtins(run.read_state())
    fields["version"] = API_VERSION - 1
    fields["something_else"] = True
    del fields["facts"]
    run.state_path.write_bytes(msgspec.json.encode(fields))
    host.restart()
    seen = host.backend.observe(str(row.pk))
    assert (seen.alive, seen.phase, seen.proven) == (True, Phase.READY, True)


def test_state_of_another_start_is_not_believed(host, scheduled):
    row = host.until_state(scheduled(load_s=60), InstanceState.STARTING)
    run = host.backend.folder(str(row.pk))
    host.until(lambda: run.read_state() is not None)
    state = run.read_state()
    run.write_state(EngineState(**{**msgspec.structs.asdict(state), "epoch": 9, "phase": Phase.READY}))
    assert host.backend.observe(str(row.pk)).phase is None


def test_stop_engines_ends_all_and_counts_no_failure(host, scheduled):
    row = host.until_state(scheduled(), InstanceState.READY)
    process = psutil.Process(row.pid)
    assert stop_engines(host.backend, drain_s=5) == 1
    assert not alive(process.pid)
    mark_stopped_with_platform(host.node)
    row.refresh_from_db()
    assert (row.state, row.restarts) == (InstanceState.SCHEDULED, 0)
    host.until_state(row, InstanceState.READY)


def test_log_is_bounded_and_says_which_start(host, scheduled):
    row = host.until_state(scheduled(), InstanceState.READY)
    log = host.backend.folder(str(row.pk)).log_path
    assert log.read_text().startswith("--- start 1, ")
    with log.open("ab") as file:
        file.truncate(17 * 1024 * 1024)
    host.backend.limit_logs()
    assert log.stat().st_size == 0
    assert log.with_name("engine.log.1").exists()


def test_one_instance_that_fails_to_be_handled_does_not_stop_the_others(host, scheduled, monkeypatch):
    broken, fine = scheduled(), scheduled()
    real = host.backend.start

    def start(spec, local):
        if spec.instance_id == str(broken.pk):
            raise RuntimeError("boom")
        real(spec, local)

    monkeypatch.setattr(host.backend, "start", start)
    assert host.until_state(fine, InstanceState.READY).state == InstanceState.READY


def test_unreadable_disk_is_no_proof_of_death(host, scheduled, monkeypatch):
    row = host.until_state(scheduled(), InstanceState.READY)

    def observe(instance_id):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(host.backend, "observe", observe)
    host.agent.tick()
    row.refresh_from_db()
    assert (row.state, row.restarts) == (InstanceState.READY, 0)
    monkeypatch.undo()
