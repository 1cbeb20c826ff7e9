"""Third-party plugins, found as entry points of a distribution on sys.path."""

import json
from pathlib import Path

import pytest
from tursiops.core import plugins
from tursiops.core.registry import Points

FOLDER = Path(__file__).parents[2] / "dummy_plugin"


@pytest.fixture
def loaded(monkeypatch, settings, tmp_path):
    """A function that loads the dummy distribution into fresh points: ({plugin: Status}, points)."""
    monkeypatch.syspath_prepend(str(FOLDER))
    settings.DATA_DIR = tmp_path

    def load():
        points = Points(["job_kinds", "model_sources", "engines", "optimizers"], closed=lambda: False)
        return {status.name: status for status in plugins.load_all(points) if "dummy" in status.name}, points

    return load


def test_every_extension_point_is_filled(loaded):
    statuses, points = loaded()
    assert statuses["dummy"].state == "active", statuses["dummy"].traceback
    assert statuses["dummy"].origin == "dummy-plugin 1.0"
    assert statuses["dummy"].settings == {"speed": 1}
    assert points["job_kinds"].get("dummy.count").spec_schema()["required"] == ["to"]
    assert points["model_sources"].get("letters").label == "Letters"
    assert points["engines"].get("dummy")().name == "dummy"
    assert points["optimizers"].get("copies").schemes()[0]["name"] == "copy"
    assert points["optimizers"].get("copies").label == "Copies"
    assert set(statuses["dummy"].contributes) == {point.name for point in points}, "the dummy must use every point"


def test_plugins_that_ship_with_us_need_no_entry_point(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    points = Points(["job_kinds", "model_sources", "engines", "optimizers"], closed=lambda: False)
    found = {status.name: status for status in plugins.load_all(points)}
    assert found["quantization"].state == "active", found["quantization"].traceback
    assert "fp8_dynamic" in [scheme["name"] for scheme in points["optimizers"].get("quantization").schemes()]


def test_broken_plugin_is_listed_and_stops_nothing(loaded):
    statuses, _ = loaded()
    assert statuses["dummy-broken"].state == "failed"
    assert "libacme.so.7" in statuses["dummy-broken"].error
    assert "dummy_plugin_broken.py" in statuses["dummy-broken"].traceback
    assert statuses["dummy"].state == "active"


def test_plugin_of_another_api_version_is_refused(loaded):
    statuses, _ = loaded()
    assert "needs plugin API 98 to 99" in statuses["dummy-future"].error


def test_plugin_that_takes_a_name_fails_whole_with_both_origins(loaded):
    statuses, points = loaded()
    assert "dummy.count" in statuses["dummy-thief"].error
    assert statuses["dummy-thief"].error.count("dummy-plugin 1.0") == 2
    assert "stolen" not in points["model_sources"]
    assert "dummy.count" in points["job_kinds"]


def test_settings_are_checked_against_the_schema(loaded, tmp_path):
    (tmp_path / "plugins.json").write_text(json.dumps({"dummy": {"speed": 0}}))
    statuses, _ = loaded()
    assert statuses["dummy"].state == "failed"
    assert "speed: 0 is less than the minimum" in statuses["dummy"].error
    (tmp_path / "plugins.json").write_text(json.dumps({"dummy": {"speed": 3}}))
    assert loaded()[0]["dummy"].settings == {"speed": 3}


def test_unreadable_settings_file_stops_with_its_name(loaded, tmp_path):
    (tmp_path / "plugins.json").write_text("{")
    with pytest.raises(plugins.PluginError, match=r"plugins\.json is not JSON"):
        loaded()
