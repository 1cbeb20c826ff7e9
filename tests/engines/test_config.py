"""From the launch spec to the core's configuration: the draft beside the model."""

from __future__ import annotations

import msgspec
import pytest

from engines.api import API_VERSION, Draft, LaunchSpec, Local, ModelFile, RunDir
from engines.native.config import ConfigError, from_launch

pytestmark = pytest.mark.speculation
FILE = ModelFile("model.gguf", "a" * 64, 1)
DRAFT = Draft([ModelFile("config.json", "b" * 64, 1), ModelFile("model.safetensors", "c" * 64, 1)], "safetensors")


def local(**draft_paths: str) -> Local:
    return Local(
        {"model.gguf": "/s/a"},
        "127.0.0.1",
        0,
        "t",
        1,
        {name.replace("_", "."): path for name, path in draft_paths.items()},
    )


def test_a_draft_goes_to_the_core_by_format_and_paths() -> None:
    spec = LaunchSpec("i", "m", [FILE], "gguf", device="cpu", draft=DRAFT)
    config = from_launch(spec, local(config_json="/s/b", model_safetensors="/s/c"))
    assert config.draft_format == "safetensors"
    assert config.draft_paths == {"config.json": "/s/b", "model.safetensors": "/s/c"}
    assert config.paths == {"model.gguf": "/s/a"}
    bare = from_launch(LaunchSpec("i", "m", [FILE], "gguf", device="cpu"), local())
    assert (bare.draft_format, bare.draft_paths) == ("", {})


def test_a_file_of_the_draft_that_is_not_here_is_named() -> None:
    spec = LaunchSpec("i", "m", [FILE], "gguf", device="cpu", draft=DRAFT)
    with pytest.raises(ConfigError, match=r"draft\.files: model\.safetensors have no path"):
        from_launch(spec, local(config_json="/s/b"))
    odd = msgspec.structs.replace(spec, draft=Draft([], "pickle"))
    with pytest.raises(ConfigError, match=r"draft\.format is 'pickle'"):
        from_launch(odd, local())


@pytest.mark.parametrize(("version", "read"), [(API_VERSION, True), (API_VERSION - 1, True), (API_VERSION - 2, False)])
def test_a_spec_of_this_release_and_of_the_one_before_is_read(tmp_path, version, read) -> None:
    run = RunDir(tmp_path / "run")
    run.write_spec(LaunchSpec("i", "m", [FILE], "gguf", draft=DRAFT), local())
    body = msgspec.json.decode(run.spec_path.read_bytes())
    body["spec"]["version"] = version
    if version < 2:
        del body["spec"]["draft"], body["local"]["draft_paths"]
    run.spec_path.write_bytes(msgspec.json.encode(body))
    if not read:
        with pytest.raises(ValueError, match=f"has version {version}"):
            run.read_spec()
        return
    spec, found = run.read_spec()
    assert (spec.draft, found.draft_paths) == (DRAFT if version == API_VERSION else None, {})
