"""The whole way with the real optimizer, the real engine and a tiny model: made, measured, judged, shown."""

from __future__ import annotations

import json

import pytest
from safetensors.numpy import load_file, save_file
from tursiops.core import store
from tursiops.jobs import logs
from tursiops.jobs.models import JobMetric, JobState
from tursiops.quantization import services
from tursiops.registry.models import LineageEdge, Version, VersionState

from tests.platform.quantization.conftest import ALICE, asked, choice, ran

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


@pytest.fixture
def loud(base, tmp_path) -> Version:
    """The base with larger weights: its answers are no even spread, so rounding shows."""
    path = tmp_path / "loud.safetensors"
    save_file({name: array * 10 for name, array in load_file(tmp_path / "tiny" / "model.safetensors").items()}, path)
    base.files.filter(name="model.safetensors").update(blob=store.put_file(path))
    return base


def test_four_bits_of_a_base_with_a_layer_kept(api, member, loud):
    base = loud
    options = {"group_size": 32}
    gate = {"perplexity_ratio": 3.0, "same_top": 0.2, "kl": 5.0, "fallbacks": 0}
    wanted = asked(choice("w4a16_gptq", options=options, keep=["layers.0.down"], gate=gate), samples=32, tokens=64)
    (row,) = services.quantize(base=base, actor=ALICE, asked=wanted)
    job = ran(row)
    assert (job.state, row.verdict) == (JobState.SUCCEEDED, "passed"), (job.reason, logs.read(job, 0).text)
    assert [rule["metric"] for rule in row.rules] == list(gate)
    assert 0.2 < row.figures["same_top"] < 1
    assert 1e-4 < row.figures["kl"] < 5
    assert row.base_figures["memory_bytes"] > row.figures["memory_bytes"] > 0
    assert min(row.figures["decode_tokens_per_s"], row.base_figures["prefill_tokens_per_s"]) > 0
    version = Version.objects.get(pk=row.version_id)
    assert (version.state, version.format) == (VersionState.READY, "safetensors")
    assert version.shape["quantized_parameters"] > 0
    with store.open_blob(version.files.get(name="config.json").blob_id) as file:
        assert json.load(file)["quantization_config"]["quant_method"] == "compressed-tensors"
    assert LineageEdge.objects.get(child=version).parent == base
    assert JobMetric.objects.filter(job=job, name="layer_loss").exists()
    shown = api(member).get(f"/api/v1/quantizations/{row.pk}").json()
    assert [layer["name"] for layer in shown["layers"] if layer["method"] == "kept"] == ["layers.0.down"]
    table = api(member).get(f"/api/v1/versions/{base.pk}/quantizations").json()
    assert [each["version"] for each in table["rows"]] == [str(version.pk)]
    assert table["base"]["figures"]["perplexity"] == row.base_figures["perplexity"]
