"""What engines keep between starts: one folder for a deployment and version, which goes with the deployment."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tursiops.deployments.apply import remove_deployment
from tursiops.deployments.models import Deployment, Desired, InstanceState
from tursiops.fleet.caches import VERSIONS, EngineCaches

from tests import factories


def cache_of(host, row) -> Path:
    _, local = host.backend.folder(str(row.pk)).read_spec()
    return Path(local.cache_dir)


def removed(deployment: Deployment) -> None:
    """As the controller does when no instance is left."""
    Deployment.objects.filter(pk=deployment.pk).update(desired=Desired.DELETED)
    remove_deployment(deployment)
    assert not Deployment.objects.filter(pk=deployment.pk).exists()


def test_an_instance_that_takes_another_s_place_gets_the_same_folder(host, tiny_deployment):
    deployment = tiny_deployment(replicas=2)
    first, second = (
        factories.make_instance(deployment, node=host.node, index=index, state=InstanceState.SCHEDULED)
        for index in range(2)
    )
    for row in (first, second):
        host.until_state(row, InstanceState.READY)
    folder = cache_of(host, first)
    assert folder == cache_of(host, second)
    assert folder.parts[-2:] == (str(deployment.pk), str(deployment.current.version_id))
    (folder / "lookahead.bin").write_bytes(b"said")
    for row in (first, second):
        host.backend.kill(str(row.pk))
        row.delete()
    host.until(lambda: host.backend.runs() == [])
    after = factories.make_instance(deployment, node=host.node, state=InstanceState.SCHEDULED)
    host.until_state(after, InstanceState.READY)
    assert (cache_of(host, after) / "lookahead.bin").read_bytes() == b"said"
    for path in (folder, folder.parent, folder.parent.parent):
        assert path.stat().st_mode & 0o777 == 0o700
    host.backend.kill(str(after.pk))
    after.delete()
    removed(deployment)
    host.agent.tick()
    assert not folder.parent.exists()


@pytest.mark.django_db
def test_of_old_versions_the_newest_stay(tmp_path, team):
    caches = EngineCaches(tmp_path / "engines")
    deployment = factories.make_deployment(team)
    folders = []
    for number in range(VERSIONS + 2):
        row = factories.make_instance(deployment, index=number)
        row.revision.version = factories.make_version(team=team)
        folders.append(Path(caches.folder(row)))
        moment = time.time() - 100 + number
        os.utime(folders[-1], (moment, moment))
    assert [folder.exists() for folder in folders] == [False] * 2 + [True] * VERSIONS


@pytest.mark.django_db
def test_what_is_not_a_deployment_s_is_left_alone_and_a_full_disk_stops_no_start(tmp_path, team, monkeypatch):
    root = tmp_path / "engines"
    caches = EngineCaches(root)
    caches.sweep([])  # nothing was kept yet
    row = factories.make_instance(factories.make_deployment(team))
    (root / "notes").mkdir(parents=True)
    folder = Path(caches.folder(row))
    caches.sweep([])
    assert folder.exists()
    row.delete()
    removed(row.deployment)
    caches.sweep([])
    assert [path.name for path in root.iterdir()] == ["notes"]

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    assert caches.folder(row) == ""
