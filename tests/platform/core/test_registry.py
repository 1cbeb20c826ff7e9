"""Plugin points: closed keys, both origins named, temporary items for tests."""

import pytest
from tursiops.core.errors import NotFound
from tursiops.core.registry import Points, RegistryError, engines, job_kinds


@pytest.fixture
def open_points() -> Points:
    return Points(["job_kinds"], closed=lambda: False)


def test_duplicate_names_both_origins(open_points):
    open_points["job_kinds"].register("train", object(), origin="tursiops.jobs")
    with pytest.raises(RegistryError, match=r"'train' is registered twice: by tursiops\.jobs and by plugin acme"):
        open_points["job_kinds"].register("train", object(), origin="plugin acme")


def test_closed_once_django_is_up():
    with pytest.raises(RegistryError, match="closed"):
        job_kinds.register("late", object(), origin="test")


def test_unknown_point_is_an_error(open_points):
    with pytest.raises(RegistryError, match="job_kinds"):
        open_points["job_kindz"]


def test_unknown_item_names_what_exists(open_points):
    open_points["job_kinds"].register("train", object(), origin="a")
    with pytest.raises(NotFound) as caught:
        open_points["job_kinds"].get("trian")
    assert "train" in caught.value.hint


def test_register_temporarily_ends_with_the_block():
    item = object()
    with job_kinds.register_temporarily("temporary", item):
        assert job_kinds.get("temporary") is item
    assert "temporary" not in job_kinds


def test_built_in_engine_is_registered():
    assert "native" in engines
    assert engines.origin("native") == "engines.api"
