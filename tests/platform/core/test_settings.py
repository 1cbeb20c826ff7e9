"""The table of environment variables: printed, checked, and what children get of it."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command
from tursiops.settings import env

ROOT = Path(__file__).parents[3]


def test_settings_doc_prints_every_variable():
    out = io.StringIO()
    call_command("settings_doc", stdout=out)
    lines = out.getvalue().splitlines()
    assert len(lines) == len(env.VARIABLES) + 2
    assert all(f"`{variable.name}`" in line for variable, line in zip(env.VARIABLES, lines[2:], strict=True))


def test_unknown_variable_stops_the_start(monkeypatch):
    monkeypatch.setenv("TURSIOPS_GATEWAY_PROT", "8001")
    with pytest.raises(env.SettingsError, match="TURSIOPS_GATEWAY_PROT; known: "):
        env.check_unknown()


def test_bad_value_names_variable_and_meaning(monkeypatch):
    monkeypatch.setenv("TURSIOPS_GATEWAY_PORT", "http")
    with pytest.raises(env.SettingsError, match=r"TURSIOPS_GATEWAY_PORT='http'.*port of the gateway"):
        env.read("TURSIOPS_GATEWAY_PORT")


def test_children_of_jobs_get_no_setting_and_no_secret(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("DATABASE_URL", "postgres://u:p@h/d")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    environment = env.job_environment()
    assert not {variable.name for variable in env.VARIABLES} & set(environment)
    assert "AWS_SECRET_ACCESS_KEY" not in environment
    assert environment["HTTPS_PROXY"] == "http://proxy:3128"
    assert environment["OMP_WAIT_POLICY"] == "PASSIVE"
    done = subprocess.run(
        [sys.executable, "-c", "import platform, tursiops, engines; print(platform.python_version())"],
        env=environment, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_importer_needs_no_django_and_nothing_heavy():
    code = (
        "import sys, tursiops.registry.importer.__main__;"
        "sys.exit(str({'django', 'torch', 'numpy', 'rest_framework'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=env.job_environment(), capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == "set()"


def test_control_plane_imports_no_torch():
    """Idle memory: whatever web, worker, node and controller import at start must be without it."""
    code = (
        "import django; django.setup(); import sys, tursiops.urls, tursiops.asgi, tursiops.jobs.tasks;"
        "from tursiops.core.registry import engine, engines; [engine(name) for name in engines.names()];"
        "sys.exit('torch is imported' if 'torch' in sys.modules else 0)"
    )
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tursiops.settings.test",
        "PYTHONPATH": f"{ROOT}/platform:{ROOT}",
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("log_format", "expected"), [("json", '"event": "test.told"'), ("console", "test.told")])
def test_log_lines_are_events_on_stderr(log_format, expected, tmp_path):
    code = (
        "import django; django.setup(); import logging, structlog;"
        "structlog.get_logger('ours').info('test.told', job='1'); logging.getLogger('theirs').warning('foreign %s', 7)"
    )
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tursiops.settings.prod",
        "PYTHONPATH": f"{ROOT}/platform:{ROOT}",
        "TURSIOPS_LOG_FORMAT": log_format,
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    ours, theirs = done.stderr.splitlines()
    assert expected in ours
    assert "foreign 7" in theirs
    assert done.stdout == ""
