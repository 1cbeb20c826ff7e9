"""One simulated run, written by four tools' definitions: converted figures agree with ours, the others say why not."""

import json

import pytest

from evaluation.metrics import definitions
from evaluation.metrics.quantiles import summarize
from evaluation.report.errors import ReportError
from evaluation.report.importers.files import import_file
from tests.evaluation.report.importers import writers
from tests.evaluation.report.sample import records

RATE, N = 4.0, 400


@pytest.fixture(scope="module")
def ours():
    """Monotonic times begin anywhere; theirs are floats of seconds."""
    return records(RATE, N, seed=3, fail=0.02)


def expected(name, ours):
    return summarize(definitions.values(name, ours), definitions.UNITS[name])


def agree(level, ours, *names, within=1e-3):
    for name in names:
        for statistic in ("n", "mean", "p50", "p90", "p95", "p99"):
            told, made = getattr(expected(name, ours), statistic), getattr(level.metrics[name], statistic)
            assert made == pytest.approx(told, rel=within), f"{name} {statistic}"


def refused(result):
    return {finding.evidence["metric"]: finding.evidence["reason"] for finding in result.levels[0].findings}


def write(tmp_path, content, name="theirs.json"):
    path = tmp_path / name
    path.write_text("\n".join(map(json.dumps, content)) if isinstance(content, list) else json.dumps(content))
    return path


def counted(level, ours):
    failed = sum(record.status == "error" for record in ours)
    assert failed > 0
    assert (level.counts.offered, level.counts.ok, level.counts.error) == (N, N - failed, failed)
    assert level.verdict == "undetermined"
    assert level.decision == "undetermined"


@pytest.mark.parametrize("chat", [False, True])
def test_vllm_with_every_request(tmp_path, ours, chat):
    """In chat its TTFT is that of the empty role delta: ours is found behind it."""
    told = writers.vllm(ours, RATE, chat=chat)
    result, requests = import_file(write(tmp_path, told))
    level = result.levels[0]
    agree(level, ours, "ttft", "e2el", "tpot", "itl", "icl", "output_tokens")
    counted(level, ours)
    assert level.rate == RATE
    assert len(requests[0]) == N
    assert "ttft_intended" not in level.metrics
    assert "plan" in refused(result)["ttft_intended"]
    assert level.offered_rate == pytest.approx(N / (ours[-1].sent_ns - ours[0].sent_ns) * 1e9, rel=0.01)
    theirs = told["mean_ttft_ms"]
    assert expected("ttft", ours).mean == pytest.approx(theirs + (1000 * writers.ROLE_S if chat else 0), rel=1e-3)


def test_vllm_sums(tmp_path, ours):
    result, _ = import_file(write(tmp_path, writers.vllm(ours, RATE, detailed=False)))
    level = result.levels[0]
    for name in ("ttft", "e2el", "tpot", "icl"):  # what it calls ITL are gaps between events
        assert level.metrics[name].mean == pytest.approx(expected(name, ours).mean, rel=1e-3)
        assert level.metrics[name].p50 == pytest.approx(expected(name, ours).p50, rel=0.02)
        # Theirs is interpolated between two values of the tail.
        assert expected(name, ours).bounds["p99"][0] < level.metrics[name].p99 <= expected(name, ours).max
    assert set(refused(result)) >= {"itl", "done_rate", "ttft_intended"}
    assert level.done_rate is None
    chat, _ = import_file(write(tmp_path, writers.vllm(ours, RATE, chat=True, detailed=False)))
    assert "ttft" not in chat.levels[0].metrics
    assert "role" in refused(chat)["ttft"]


def test_vllm_appended_results_are_levels(tmp_path, ours):
    both = [writers.vllm(ours, rate, detailed=False) for rate in (2.0, 4.0)]
    result, _ = import_file(write(tmp_path, both))
    assert [level.rate for level in result.levels] == [2.0, 4.0]


def test_vllm_events_of_several_tokens(tmp_path, ours):
    """Speculation: fewer events than tokens. In chat the first token can't be told from the role then."""
    told = writers.vllm(ours, RATE, chat=True)
    told["output_lens"] = [tokens * 2 for tokens in told["output_lens"]]
    result, _ = import_file(write(tmp_path, told))
    assert {"ttft", "tpot", "itl"} <= set(refused(result))
    assert not {"ttft", "tpot", "itl"} & set(result.levels[0].metrics)
    assert "icl" in result.levels[0].metrics


def test_guidellm(tmp_path, ours):
    """Its TPOT includes the first token and its latency the usage event; its times give ours."""
    result, _ = import_file(write(tmp_path, writers.guidellm(ours, RATE)))
    level = result.levels[0]
    agree(level, ours, "ttft", "ttft_intended", "e2el", "e2el_intended", "tpot", "send_lag", within=2e-3)
    counted(level, ours)
    assert level.rate == RATE
    assert result.environment["tool_version"] == "0.6.0"
    assert not {"itl", "icl"} & set(level.metrics)
    assert "average" in refused(result)["itl"]


def test_guidellm_closed_loop_has_no_intended_start(tmp_path, ours):
    report = writers.guidellm(ours, RATE)
    report["benchmarks"][0]["config"]["strategy"] = {"type_": "concurrent", "streams": 8}
    report["benchmarks"][0]["scheduler_metrics"]["requests_made"]["successful"] += 100
    result, _ = import_file(write(tmp_path, report))
    assert (result.levels[0].rate, result.levels[0].concurrency) == (None, 8)
    assert "ttft_intended" not in result.levels[0].metrics
    assert "sample" in refused(result)["counts"]


@pytest.mark.parametrize("usage", [True, False])
def test_aiperf_requests(tmp_path, ours, usage):
    """Warm-up lines are left out; without the server's usage n is the client's, and TPOT is not ours."""
    path = write(tmp_path, writers.aiperf(ours, usage=usage), "profile_export.jsonl")
    write(tmp_path, writers.aiperf_sums(ours, RATE), "profile_export_aiperf.json")
    result, _ = import_file(path)
    level = result.levels[0]
    agree(level, ours, "ttft", "e2el", "icl")
    counted(level, ours)
    assert level.rate == RATE
    if usage:
        agree(level, ours, "tpot")
    else:
        assert "tpot" not in level.metrics
        assert "client's own count" in refused(result)["tpot"]


def test_aiperf_sums(tmp_path, ours):
    result, _ = import_file(write(tmp_path, writers.aiperf_sums(ours, RATE)))
    level = result.levels[0]
    counted(level, ours)
    for name in ("ttft", "e2el"):
        assert level.metrics[name].mean == pytest.approx(expected(name, ours).mean, rel=1e-3)
        assert level.metrics[name].p95 == pytest.approx(expected(name, ours).p95, rel=0.02)
    assert {"tpot", "itl", "done_rate"} <= set(refused(result))


@pytest.mark.parametrize("role", [False, True])
def test_evalscope_with_its_database(tmp_path, ours, role):
    """The pickled answers are never read: they are no pickle here."""
    result, _ = import_file(writers.evalscope(ours, tmp_path, RATE, role=role))
    level = result.levels[0]
    agree(level, ours, "ttft", "e2el", "tpot", "itl", "icl")
    counted(level, ours)
    assert level.rate == RATE
    assert "too high" in refused(result)["tokens_per_chunk"]


def test_evalscope_without_its_database(tmp_path, ours):
    result, _ = import_file(writers.evalscope(ours, tmp_path, RATE, role=True, database=False))
    counted(result.levels[0], ours)
    assert result.levels[0].metrics == {}
    assert {"ttft", "tpot", "e2el", "itl"} <= set(refused(result))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "empty"),
        ("{", "neither JSON"),
        ('{"some": "thing"}', "nobody knows this form"),
        (
            '{"metadata": {"guidellm_version": "9"}, "benchmarks": [{"requests": {"successful": [{"info": 3}]}}]}',
            "version",
        ),
        ('{"backend": "vllm", "num_prompts": 1, "completed": "x", "request_throughput": 1}', "version"),
    ],
)
def test_what_nobody_can_read(tmp_path, content, said):
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(ReportError, match=said):
        import_file(path)
