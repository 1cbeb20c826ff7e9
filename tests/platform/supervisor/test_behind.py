"""A Django command that loads while the database is prepared, and begins when it is."""

import subprocess
import sys
import time

from tests.running import ROOT, environment, until


def behind(folder, *argv):
    env = environment(PYTHONPATH=f"{ROOT / 'platform'}:{ROOT}", DJANGO_SETTINGS_MODULE="tursiops.settings.prod")
    env["TURSIOPS_DATA_DIR"] = str(folder / "data")
    command = [sys.executable, "-m", "tursiops.supervisor.behind", str(folder / "prepared"), *argv]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_it_begins_when_the_file_is_there_and_not_before(tmp_path):
    process = behind(tmp_path, "showmigrations", "jobs")
    until(lambda: (tmp_path / "data" / "secret-key").exists() or process.poll() is not None, what="settings loaded")
    time.sleep(1)
    assert process.poll() is None
    (tmp_path / "prepared").touch()
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "[ ] 0001_initial" in said


def test_it_ends_with_the_commands_own_word_and_status(tmp_path):
    (tmp_path / "prepared").touch()
    process = behind(tmp_path, "sqlmigrate", "nosuchapp", "0001")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.strip().splitlines()[-1].startswith("sqlmigrate: No installed app")
