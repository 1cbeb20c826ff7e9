"""One supervisor per data folder; what a killed one left is ended, and never a stranger with the same pid."""

import json
import os
import subprocess
import sys

import psutil
import pytest
from tursiops.supervisor import state


def sleeper() -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)


def test_a_second_one_is_refused_with_the_first_ones_pid_and_address(tmp_path):
    with state.only_one(tmp_path):
        state.write(tmp_path, 8123, {})
        with pytest.raises(state.AlreadyRunning) as refused, state.only_one(tmp_path):
            pass
    assert f"process {os.getpid()}" in str(refused.value)
    assert "http://127.0.0.1:8123" in str(refused.value)
    assert "--data-dir" in str(refused.value)


def test_the_folder_is_free_again_afterwards(tmp_path):
    for _ in range(2):
        with state.only_one(tmp_path):
            pass


def test_leftovers_are_ended(tmp_path):
    left = sleeper()
    state.write(tmp_path, 1, {"web": (left.pid, psutil.Process(left.pid).create_time())})
    assert state.end_leftovers(tmp_path) == ["web"]
    assert left.wait(5) != 0


def test_a_stranger_who_was_given_the_pid_is_left_alone(tmp_path):
    stranger = sleeper()
    try:
        state.write(tmp_path, 1, {"web": (stranger.pid, psutil.Process(stranger.pid).create_time() - 100)})
        assert state.end_leftovers(tmp_path) == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("content", ["", "[]", "{", json.dumps({"v": 99, "children": {"web": {}}})])
def test_a_state_file_that_says_nothing_is_nothing(tmp_path, content):
    (tmp_path / "supervisor.json").write_text(content)
    assert state.read(tmp_path) == {}
    assert state.end_leftovers(tmp_path) == []
