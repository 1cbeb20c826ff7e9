"""The files under deploy/ name what exists: settings, folders, programs. Their own tools check them where installed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tursiops.settings.env import VARIABLES

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
KNOWN = {variable.name for variable in VARIABLES}


def test_every_setting_named_in_deploy_is_one_that_is_read():
    named: dict[str, set[str]] = {}
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            for name in re.findall(r"TURSIOPS_[A-Z_]+", path.read_text()):
                named.setdefault(name, set()).add(path.name)
    own_of_compose = {"TURSIOPS_PORT"}
    assert set(named) - own_of_compose <= KNOWN, named


def test_compose_waits_for_what_it_needs():
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    service = compose["services"]["tursiops"]
    assert (DEPLOY / "compose" / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    for name, condition in service["depends_on"].items():
        assert condition == {"condition": "service_healthy"}
        assert "healthcheck" in compose["services"][name]
    volumes = {volume.split(":")[0] for item in compose["services"].values() for volume in item["volumes"]}
    assert volumes == set(compose["volumes"])


def test_the_image_copies_what_is_there():
    text = (DEPLOY / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source


def test_the_unit_is_valid(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    unit = (DEPLOY / "systemd" / "tursiops.service").read_text()
    assert "ExecStart=/opt/tursiops/bin/tursiops up" in unit
    here = tmp_path / "tursiops.service"
    here.write_text(unit.replace("/opt/tursiops/bin/tursiops up --no-demo", "/bin/true").replace("User=tursiops", ""))
    done = subprocess.run(["systemd-analyze", "verify", str(here)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
