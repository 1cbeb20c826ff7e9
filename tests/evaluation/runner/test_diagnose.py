"""Each rule with evidence that sets it off, and without."""

import pytest

from evaluation.runner.counters import change, read
from evaluation.runner.diagnose import diagnose, measured_prefix
from evaluation.schema import Health, LevelResult, ObjectiveResult, Prefix, Window
from tests.evaluation.records import record

S = 1_000_000_000


def level(**fields):
    return LevelResult(
        index=0, rate=1.0, window=Window(start_ns=0, end_ns=S, seconds=1.0), **{"verdict": "steady", **fields}
    )


def requests(count=50, **fields):
    return [record(at, ttft=30, gaps=[5, 5], index=at, **fields) for at in range(count)]


def codes(result, records):
    return [one.code for one in diagnose(result, records)]


def test_a_sound_level_has_no_findings():
    sound = level(prefix=Prefix(expected=0.5, measured=0.52), server={"preemptions": 0.0, "kv_share_peak": 0.4})
    assert codes(sound, requests(planned_output_tokens=3, prompt_tokens=10, planned_prompt_tokens=10)) == []


@pytest.mark.parametrize(
    ("fields", "code", "severity"),
    [
        ({"prefix": Prefix(expected=0.1, measured=0.5)}, "cache_inflated", "error"),
        ({"prefix": Prefix(expected=0.8, measured=0.1)}, "cache_below_expected", "warning"),
        ({"verdict": "overloaded"}, "queue_build_up", "error"),
        ({"verdict": "undetermined"}, "not_steady", "warning"),
        ({"health": Health(healthy=False, reasons=["cpu"])}, "client_bound", "error"),
        ({"server": {"preemptions": 4.0}}, "preemption", "warning"),
        ({"server": {"kv_share_peak": 0.99, "waiting_peak": 3.0}}, "kv_full", "warning"),
    ],
)
def test_figures_of_a_level(fields, code, severity):
    found = diagnose(level(**fields), requests())
    assert [(one.code, one.severity) for one in found] == [(code, severity)]
    assert found[0].level == 0
    assert found[0].cause
    assert found[0].remedy


def test_an_estimated_expectation_is_not_held_against_a_chat_template():
    assert codes(level(prefix=Prefix(expected=0.0, measured=0.2, verified=False)), requests()) == []
    assert codes(level(prefix=Prefix(expected=0.0, measured=0.9, verified=False)), requests()) == ["cache_inflated"]


def test_case_14_the_clients_ttft_against_the_servers_with_its_parts():
    """evalscope #408: 47 ms at the client, 16 ms at the server."""
    slow = [record(at, ttft=47, connect_ns=20_000_000, server_ms={"overhead": 3.0}, index=at) for at in range(50)]
    found = diagnose(level(server={"ttft_s_sum": 0.8, "ttft_count": 50.0}), slow)
    (parts,) = [one for one in found if one.code == "ttft_parts"]
    assert parts.severity == "warning"
    assert parts.evidence["client_ms"] == pytest.approx(47)
    assert parts.evidence["server_ms"] == pytest.approx(16)
    assert parts.evidence["difference_ms"] == pytest.approx(31)
    assert parts.evidence["connect_ms"] == pytest.approx(20)
    assert parts.evidence["gateway_ms"] == pytest.approx(3)
    assert parts.evidence["rest_ms"] == pytest.approx(8)
    agree = diagnose(level(server={"ttft_s_sum": 2.2, "ttft_count": 50.0}), slow)
    assert [one.severity for one in agree if one.code == "ttft_parts"] == ["info"]


def test_case_15_failures_are_named_by_what_failed_most():
    failed = [record(at, status="error", error="http_503: queue full", index=at) for at in range(10)]
    (storm,) = [one for one in diagnose(level(), requests() + failed) if one.code == "error_storm"]
    assert storm.evidence == {"failed": 10, "of": 60, "codes": {"http_503": 10}, "example": "http_503: queue full"}
    down = [record(at, status="error", error="connection_refused: 1", index=at) for at in range(10)]
    assert codes(level(), down) == ["endpoint_down"]
    few = [record(0, status="cut", error="cut: no end")]
    assert "error_storm" not in codes(level(), requests(200) + few)


def test_case_17_prompts_that_the_server_counts_otherwise():
    """gpustack #4560: asked 1024, counted 1107."""
    assert codes(level(), requests(planned_prompt_tokens=1024, prompt_tokens=1107)) == ["prompt_length_differs"]


def test_early_stops_and_no_usage_and_chunks_of_several_tokens():
    assert codes(level(), requests(planned_output_tokens=100)) == ["early_stops"]
    assert codes(level(), requests(planned_output_tokens=100, output_tokens=0)) == ["early_stops"]
    assert codes(level(), requests(output_tokens=None)) == ["no_usage"]
    several = [record(at, ttft=10, gaps=[5], tokens=[4, 4], index=at) for at in range(50)]
    assert codes(level(), several) == ["chunks_are_not_tokens"]


def test_a_sample_that_is_too_small_says_how_many_are_needed():
    small = ObjectiveResult(metric="e2el", limit_ms=1, quantile=0.99, start="intended", k=0, n=200)
    (found,) = diagnose(level(objectives=[small]), requests())
    assert (found.code, found.evidence["needed"]) == ("sample_too_small", 299)


def test_a_cold_start_is_told_and_is_not_in_the_window():
    cold = [record(at - 100, ttft=900, index=at) for at in range(5)]
    assert codes(level(), cold + requests()) == ["cold_start"]


def test_prefix_hits_come_from_usage_and_else_from_counters():
    told = [record(0, prompt_tokens=100, cached_tokens=25), record(1, prompt_tokens=300, cached_tokens=75)]
    assert measured_prefix(0.2, told, {}).measured == 0.25
    found = measured_prefix(0.2, requests(), {"prefix_hit_tokens": 30.0, "prefix_query_tokens": 40.0})
    assert (found.measured, found.source) == (0.75, "metrics")
    assert measured_prefix(0.2, requests(), {}).measured is None


OURS = """# TYPE tursiops_engine_preemptions counter
tursiops_engine_preemptions_total 3.0
# TYPE tursiops_engine_kv_blocks_used gauge
tursiops_engine_kv_blocks_used 30.0
tursiops_engine_kv_blocks_total 40.0
# TYPE tursiops_engine_request_ttft_seconds histogram
tursiops_engine_request_ttft_seconds_bucket{le="+Inf"} 2.0
tursiops_engine_request_ttft_seconds_count 2.0
tursiops_engine_request_ttft_seconds_sum 0.5
"""
VLLM = """# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{model_name="m",engine="0"} 1.0
vllm:num_preemptions_total{model_name="m",engine="1"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.75
"""


@pytest.mark.parametrize("text", [OURS, VLLM])
def test_both_engines_names_are_read(text):
    figures = read(text)
    assert figures["preemptions"] == 3
    assert figures["kv_share"] == 0.75
    assert change({"preemptions": 1.0}, figures) == {"preemptions": 2.0}
    assert change({"preemptions": 9.0}, figures) == {"preemptions": 3.0}  # it was started anew
