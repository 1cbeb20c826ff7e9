"""A spec that can't be run is refused at the door, with the path, the reason and the fix."""

import json

import msgspec
import pytest

from evaluation.schema import RequestRecord, ResultDoc, RunSpec, encode, read_result
from evaluation.spec_errors import SpecError, read_spec


def spec(**changes):
    return {
        "endpoint": {"url": "http://127.0.0.1:8000"},
        "dataset": {"kind": "synthetic"},
        "load": {"kind": "rate", "rate": 2},
        **changes,
    }


REFUSED = {
    "a rate of nothing": ({"load": {"kind": "rate", "rate": 0}}, "$.load.rate", ""),
    "a misspelt field": ({"load": {"kind": "rate", "ratee": 2}}, "$.load.ratee", "rate"),
    "an unknown kind": ({"load": {"kind": "burst"}}, "$.load.kind", "concurrency"),
    "an unknown field of a data set": ({"dataset": {"kind": "jsonl", "path": "x", "colour": 1}}, ".colour", "path"),
    "a data set without its file": ({"dataset": {"kind": "jsonl"}}, "$.dataset.path", "Add"),
    "an open loop without a rate": ({"load": {"kind": "rate"}}, "$.load.rate", "requests per second"),
    "a search without an objective": ({"load": {"kind": "search"}}, "$.slo", "e2el"),
    "a search that ends before it begins": (
        {"load": {"kind": "search", "low": 4, "high": 2}, "slo": [{"metric": "e2el", "limit_ms": 9}]},
        "$.load.high",
        "",
    ),
    "an objective with a wrong field": ({"slo": [{"metric": "e2el", "limit": 9}]}, "$.slo[0].limit", "limit_ms"),
    "a quantile of 1": ({"slo": [{"metric": "e2el", "limit_ms": 9, "quantile": 1}]}, "$.slo[0].quantile", ""),
    "intended starts in a closed loop": (
        {"load": {"kind": "concurrency", "concurrency": 2}, "slo": [{"metric": "e2el", "limit_ms": 9}]},
        "$.slo[0].start",
        "actual",
    ),
    "trace arrivals without a trace": ({"load": {"kind": "rate", "arrivals": "trace"}}, "$.load.arrivals", ""),
    "a histogram without values": (
        {"dataset": {"kind": "synthetic", "prompt": {"distribution": "histogram"}}},
        "$.dataset.prompt.values",
        "",
    ),
    "a password in a URL": ({"endpoint": {"url": "http://me:secret@host:80"}}, "$.endpoint.url", "api_key_env"),
    "a password for metrics": (
        {"endpoint": {"url": "http://host:80", "metrics_url": "http://me:secret@host:80/metrics"}},
        "$.endpoint.metrics_url",
        "api_key_env",
    ),
    "a port that is none": ({"endpoint": {"url": "http://host:port"}}, "$.endpoint.url", "http://host:8000"),
    "no URL": ({"endpoint": {"url": "localhost:80"}}, "$.endpoint.url", ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_spec_names_path_and_fix(name):
    changes, path, fix = REFUSED[name]
    with pytest.raises(SpecError) as caught:
        read_spec(spec(**changes))
    assert path in caught.value.path
    assert fix in caught.value.fix
    assert "secret" not in str(caught.value)


def test_what_is_no_json_is_told_as_such():
    with pytest.raises(SpecError, match="not JSON"):
        read_spec(b"{rate: 2}")


def test_a_spec_survives_its_own_json():
    read = read_spec(json.dumps(spec(slo=[{"metric": "ttft", "limit_ms": 500}])))
    assert isinstance(read, RunSpec)
    assert read_spec(encode(read)) == read


def test_a_result_survives_its_own_json_and_a_record_keeps_null_apart_from_zero():
    read = read_spec(spec())
    document = ResultDoc(id="r1", kind="load", spec=read, seed=7)
    again = read_result(encode(document))
    assert (again.id, again.seed, again.definitions, again.spec) == ("r1", 7, 1, read)
    record = msgspec.json.decode(encode(RequestRecord(index=0, intended_ns=5)), type=RequestRecord)
    assert record.first_ns is None
    assert record.output_tokens is None
