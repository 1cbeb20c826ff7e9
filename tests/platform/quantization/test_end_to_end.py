"""The whole way with the real optimizer, the real engine and a tiny model: made, measured, judged, deployable."""

from __future__ import annotations

import json

import pytest
from tursiops.core import store
from tursiops.jobs import logs
from tursiops.jobs.models import JobMetric, JobState
from tursiops.quantization import services
from tursiops.registry.models import LineageEdge, Version, VersionState

from tests.platform.quantization.conftest import ALICE, asked, choice, ran

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def test_int8_and_four_bits_of_one_base_side_by_side(api, member, base):
    wanted = asked(
        choice("int8_weight_only"),
        choice("w4a16_gptq", options={"group_size": 32}, keep=["model.layers.0.mlp.down_proj"], gate={"kl": 0.0}),
        samples=32,
        tokens=64,
    )
    eight, four = services.quantize(base=base, actor=ALICE, asked=wanted)
    jobs = [ran(row) for row in (eight, four)]
    told = [(job.state, job.reason, logs.read(job, 0).text) for job in jobs]
    assert [job.state for job in jobs] == [JobState.SUCCEEDED, JobState.REJECTED], told
    assert 0.99 < eight.figures["perplexity_ratio"] < 1.01
    assert eight.figures["same_top"] > 0.95
    assert 0 < eight.figures["kl"] < four.figures["kl"]
    for row in (eight, four):
        version = Version.objects.get(pk=row.version_id)
        assert (version.state, version.format) == (VersionState.READY, "safetensors")
        assert version.quantization
        with store.open_blob(version.files.get(name="config.json").blob_id) as file:
            assert json.load(file)["quantization_config"]["quant_method"] == "compressed-tensors"
        assert row.figures["decode_tokens_per_s"] > 0
        assert row.base_figures["memory_bytes"] > row.figures["memory_bytes"] > 0
        assert LineageEdge.objects.get(child=version).parent == base
    assert "The KL divergence is" in Version.objects.get(pk=four.version_id).reason
    assert JobMetric.objects.filter(job=jobs[1], name="layer_loss").exists()
    shown = api(member).get(f"/api/v1/quantizations/{four.pk}").json()
    kept = [layer["name"] for layer in shown["layers"] if layer["method"] == "kept"]
    assert kept == ["layers.0.down"]
    table = api(member).get(f"/api/v1/versions/{base.pk}/quantizations").json()
    assert [row["verdict"] for row in table["rows"]] == ["passed", "failed"]
