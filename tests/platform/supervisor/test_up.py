"""`up` as a whole, without a model: killed children come back, nothing is left behind, memory stays small."""

import json
import os
import signal
import subprocess
import time

import httpx2 as httpx
import psutil
import pytest

from tests.processes import alive
from tests.running import Running, environment, until

pytestmark = [pytest.mark.slow, pytest.mark.embedded, pytest.mark.timeout(400)]
LIMIT = 1.2 * 2**30  # bytes, resident, of all processes besides engines
NAMES = {"broker", "web", "gateway", "controller", "node", "beat"}


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    with Running(tmp_path_factory.mktemp("up") / "data", "--no-demo", PYTHONDONTWRITEBYTECODE="1") as running:
        running.wait_for("Tursiops is up", 180)
        yield running


def test_the_login_that_it_printed_signs_in(up):
    username, password = up.wait_for(r"login +(\S+) / (\S+)").groups()
    with httpx.Client(base_url=up.url) as client:
        client.get("/api/v1/auth/session")
        headers = {"X-CSRFToken": client.cookies["csrftoken"], "Referer": up.url}
        answer = client.post("/api/v1/auth/login", json={"username": username, "password": password}, headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.json()["user"]["is_admin"] is True


def test_no_process_compiles_itself_anew_at_every_start(up):
    for name in sorted(NAMES - {"broker"}):
        assert "PYTHONDONTWRITEBYTECODE" not in up.children()[name].environ(), name


def test_idle_memory(up):
    until(up.worker, what="the job worker")
    time.sleep(3)
    processes = {"supervisor": psutil.Process(up.process.pid), "worker": up.worker(), **up.children()}
    sizes = {name: process.memory_info().rss for name, process in processes.items()}
    told = ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in sorted(sizes.items()))
    print(f"resident: {sum(sizes.values()) / 2**20:.0f} MiB ({told})")
    assert set(sizes) == NAMES | {"supervisor", "worker"}
    assert sum(sizes.values()) < LIMIT, told
    assert sizes["supervisor"] < 60 * 2**20


def test_a_second_one_on_the_same_folder_is_refused(up):
    done = subprocess.run(
        up.argv, env=environment(PYTHONPATH="platform:."), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"process {up.process.pid}" in done.stderr
    assert str(up.port) in done.stderr


def test_a_taken_port_is_refused_by_name(up, tmp_path):
    other = Running(tmp_path / "data", "--no-demo", port=up.port)
    done = subprocess.run(
        other.argv, env=environment(PYTHONPATH="platform:."), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"--port {up.port + 1}" in done.stderr
    assert "process " in done.stderr


def test_killed_processes_come_back(up):
    until(lambda: set(up.children()) == NAMES, what="all processes running")
    for name in sorted(NAMES):
        before = up.children()[name]
        before.kill()
        until(lambda name=name, old=before.pid: pid_of(up, name) not in (0, old), 60, f"a new {name}")
    until(up.answers, 90, "an answer of web through the gateway")
    assert set(up.children()) == NAMES


def pid_of(up: Running, name: str) -> int:
    process = up.children().get(name)
    return process.pid if process else 0


def test_the_gateway_answers_while_web_is_away(up):
    web = up.children()["web"]
    web.kill()
    assert httpx.get(f"{up.url}/v1/models", timeout=5).status_code == 401  # asks for a key: it is alive
    assert httpx.get(f"{up.url}/api/v1/auth/session", timeout=5).status_code in (502, 503)
    until(up.answers, 60, "web again")


def test_the_job_worker_comes_back(up):
    before = up.worker()
    before.kill()
    until(lambda: (worker := up.worker()) is not None and worker.pid != before.pid, 60, "a new job worker")


def test_a_killed_supervisor_leaves_nothing_that_stands_in_the_way(up):
    family = up.children()
    up.process.kill()
    up.process.wait()
    psutil.wait_procs(list(family.values()), timeout=20)
    again = Running(up.folder, "--no-demo", port=up.port)
    with again:
        again.wait_for("Tursiops is up", 180)
        assert "login" not in again.output  # there is an admin already
        assert again.answers()
        os.kill(again.process.pid, signal.SIGINT)
        assert again.process.wait(60) == 0
        assert "everything ended" in again.output
        for process in family.values():
            assert not alive(process.pid)
        assert not (again.run_dir / "supervisor.json").exists()
        worker = json.loads((again.run_dir / "worker" / "launch.json").read_text())
        assert not alive(worker["pid"])
