"""POST deployments/capacity: what fits on which node, by the native engine's own arithmetic."""

from __future__ import annotations

import pytest
from tursiops.deployments import serializers
from tursiops.deployments.models import Deployment, InstanceState
from tursiops.fleet.models import Gpu

from tests import factories
from tests.platform.api_bases import assert_error_shape

URL = "/api/v1/deployments"
GIB = 2**30


@pytest.fixture
def client(api, viewer):
    return api(viewer)


@pytest.fixture
def version(team):
    return factories.make_version(team=team)


@pytest.fixture
def body(version):
    return {"version": str(version.pk), "engine": "native"}


def _by_dtype(place):
    return {item["dtype"]: item for item in place["dtypes"]}


def test_a_viewer_sees_each_dtype_on_each_node(client, body, node):
    answer = client.post(f"{URL}/capacity", body).json()
    assert set(answer) == set(serializers.CapacitySerializer().fields)
    assert answer["contexts"] == [2048, 8192]
    assert answer["context_length"] == 8192
    (place,) = answer["places"]
    assert set(place) == set(serializers.CapacityPlaceSerializer().fields)
    assert (place["node"], place["device"], place["available"]) == (node.name, "cpu", 24_000_000_000)
    found = _by_dtype(place)
    assert set(found) == {"float32", "bfloat16", "float16", "int8"}
    assert set(found["int8"]) == set(serializers.DtypeCapacitySerializer().fields)
    assert set(found["int8"]["combinations"][0]) == set(serializers.CombinationSerializer().fields)
    at_8192 = {dtype: item["by_context"][1]["max_num_seqs"] for dtype, item in found.items()}
    assert at_8192["bfloat16"] > at_8192["float32"] > 50


def test_what_it_says_is_what_the_estimate_says(client, body, node):
    """Followed to the letter, the largest fits; one more request does not."""
    node.memory_available = 3_000_000_000
    node.save()
    answer = client.post(f"{URL}/capacity", {**body, "dtypes": ["float32"], "contexts": [8192]}).json()
    (found,) = answer["places"][0]["dtypes"][0]["by_context"]
    assert 1 <= found["max_num_seqs"] < 64
    setting = {"dtype": "float32", "max_model_len": 8192, "max_num_seqs": found["max_num_seqs"]}
    cache = {"kv_cache_bytes": found["kv_cache_bytes"]}
    estimate = client.post(f"{URL}/estimate", {**body, **setting, **cache}).json()
    assert (estimate["fits"], estimate["memory"]["total"]) == (True, found["total"])
    assert estimate["kv_tokens"] == 8192 * found["max_num_seqs"]
    per_request = 8192 * found["kv_cache_bytes"] // (estimate["kv_tokens"] + 16)
    more = {"max_num_seqs": found["max_num_seqs"] + 1, "kv_cache_bytes": found["kv_cache_bytes"] + per_request}
    assert not client.post(f"{URL}/estimate", {**body, **setting, **more}).json()["fits"]


def test_gpus_and_what_they_cannot(client, body):
    host = factories.make_node(name="gpu-host")
    for index, used in enumerate((20, 2)):
        Gpu.objects.create(
            node=host, index=index, name="L20", uuid=f"u{index}", memory_total=24 * GIB, memory_used=used * GIB
        )
    factories.make_node(name="closed", cordoned=True)
    answer = client.post(f"{URL}/capacity", {**body, "concurrencies": [256]}).json()
    (place,) = answer["places"]
    assert (place["node"], place["device"], place["gpu_indices"]) == ("gpu-host", "cuda", [1])
    assert place["available"] < 22 * GIB + 1
    found = _by_dtype(place)
    assert "int8" in found["int8"]["reason"]
    assert (found["int8"]["fits"], found["bfloat16"]["fits"]) == (False, True)
    (at_256,) = found["bfloat16"]["by_concurrency"]
    assert 0 < at_256["max_model_len"] < 8192
    assert [item["node"] for item in answer["rejected"]] == ["closed"]


def test_memory_that_no_node_has(client, body):
    answer = client.post(f"{URL}/capacity", {**body, "memory_bytes": 80 * GIB, "device": "cuda"}).json()
    (place,) = answer["places"]
    assert (place["node"], place["device"], place["available"]) == (None, "cuda", 80 * GIB)
    small = client.post(f"{URL}/capacity", {**body, "memory_bytes": GIB // 4}).json()["places"][0]
    assert small["device"] == "cpu"
    assert not any(item["fits"] for item in small["dtypes"])
    assert all("can be used" in item["reason"] for item in small["dtypes"])


def test_an_edit_gets_back_what_it_replaces(client, body, version, node, team):
    deployment = factories.make_deployment(team, version=version, name="smollm2")
    node.memory_available = 500_000_000
    node.save()
    placement = {"bytes": 20_000_000_000, "device": "cpu"}
    factories.make_instance(deployment, node=node, state=InstanceState.READY, placement=placement)
    assert Deployment.objects.count() == 1
    free = [
        client.post(f"{URL}/capacity", {**body, "name": name}).json()["places"][0]["available"]
        for name in ("smollm2", "another")
    ]
    assert free == [20_500_000_000, 500_000_000]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"dtypes": ["float3"]}, "dtypes"),
        ({"contexts": [0]}, "contexts"),
        ({"contexts": []}, "contexts"),
        ({"concurrencies": list(range(1, 20))}, "concurrencies"),
        ({"memory_bytes": 0}, "memory_bytes"),
        ({"engine": "tiny"}, "engine"),
        ({"engine": "vroom"}, "engine"),
        ({"options": {"unknown": 1}}, "options"),
        ({"max_num_seqs": 4}, "max_num_seqs"),
        ({"node_name": "nowhere"}, "node_name"),
    ],
)
def test_bad_input_names_the_field(client, body, node, change, field):
    error = assert_error_shape(client.post(f"{URL}/capacity", {**body, **change}), 400)
    assert field in error["fields"], error


def test_a_model_without_a_cache_is_sent_to_the_estimate(client, body, version, node):
    version.architecture = "bert"
    version.shape = {**version.shape, "task": "embed"}
    version.save()
    assert "estimate" in assert_error_shape(client.post(f"{URL}/capacity", body), 400)["message"]


def test_a_version_of_another_team_is_unknown(client, body, other_team, node):
    theirs = factories.make_version(team=other_team)
    error = assert_error_shape(client.post(f"{URL}/capacity", {**body, "version": str(theirs.pk)}), 400)
    assert "version" in error["fields"]
