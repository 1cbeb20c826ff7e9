"""Whole runs against a server with a programmed law: real HTTP, real processes, real signals."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evaluation.client import health
from evaluation.client.http import RequestError
from evaluation.client.law import Law
from evaluation.client.servers import running
from evaluation.progress import Lines
from evaluation.report import files
from evaluation.runner import level, run, traffic
from evaluation.runner.run import Run, RunError
from evaluation.schema import Counts, LevelResult
from evaluation.spec_errors import read_spec

ROOT = Path(__file__).resolve().parents[3]
LAW = Law(ttft_ms=40, itl_ms=5, output_tokens=8, chunk_tokens=2)
QUICK = {"min_s": 1, "max_s": 10}


@pytest.fixture(autouse=True)
def _loaded_machine(monkeypatch):
    """The client's verdict of itself has tests of its own; here another test may have the machine."""
    for name in ("PACING_P99_MS", "LOOP_P99_MS", "CPU_SHARE"):
        monkeypatch.setattr(health, name, 1e9)
    monkeypatch.setattr(run, "CALIBRATED_FROM", 1e9)  # has a test of its own, too
    monkeypatch.setattr(level, "LOOK_S", 0.25)


class Quiet(Lines):
    def __init__(self):
        self.said = []

    def _send(self, kind, **fields):
        self.said.append((kind, fields))


def spec(url, **changes):
    return {
        "endpoint": {"url": url, "timeout_s": 10},
        "dataset": {"kind": "synthetic", "prompt": {"mean": 30}, "output": {"mean": 8}},
        "load": {"kind": "rate", "rate": 50},
        "slo": [{"metric": "e2el", "quantile": 0.5, "limit_ms": 1000}],
        "min_requests": 40,
        "warm_up_s": 0.5,
        "cool_down_s": 0.5,
        "steady": QUICK,
        **changes,
    }


def measure(law, folder, *specs):
    async def go():
        async with running(law) as url:
            return [
                await Run(read_spec(spec(url, **changes)), folder / str(number), Quiet()).go()
                for number, changes in enumerate(specs)
            ]

    return asyncio.run(go())


@pytest.mark.slow
def test_a_load_below_capacity_is_steady_and_its_folder_holds_everything(tmp_path):
    (result,) = measure(LAW, tmp_path, {})
    found = result.levels[0]
    assert (result.verdict, result.state, found.verdict) == ("pass", "complete", "steady"), found.reasons
    assert found.counts.offered >= 40
    assert found.metrics["ttft"].min >= 39.9  # the law; a busy machine only adds
    # Six steps of 5 ms after the first chunk of two: 30 / (8 - 1). One whose first chunk is read late has less.
    assert found.metrics["tpot"].p50 >= 30 / 7 - 0.2
    assert found.prefix.measured is not None
    folder = tmp_path / "0"
    names = {path.name for path in folder.iterdir()}
    assert names >= {"spec.json", "result.json", "requests.jsonl", "report.html", "summary.csv", "gates.junit.xml"}
    records = list(files.read_requests(folder))
    assert len([one for one in records if one.warm_up]) > 5
    again = files.read(folder)
    assert again.seed == result.seed
    assert again.levels[0].metrics["ttft"] == found.metrics["ttft"]


@pytest.mark.slow
def test_the_same_seed_twice_on_one_server_is_cache_inflated(tmp_path):
    """Cases 1 and 3: +86 % by a seed. The first run has the cache to itself."""
    law = Law(ttft_ms=5, prompt_token_ms=1.0, output_tokens=4, itl_ms=2, cache_tokens=1 << 20)
    first, second = measure(law, tmp_path, {"seed": 7}, {"seed": 7})
    codes = [[one.code for one in result.levels[0].findings] for result in (first, second)]
    assert ["cache_inflated" in found for found in codes] == [False, True]
    assert second.verdict == "invalid"
    assert second.levels[0].prefix.measured > 0.3


@pytest.mark.slow
def test_above_capacity_is_overloaded_with_its_cause_and_the_remedy_works(tmp_path):
    law = Law(ttft_ms=40, itl_ms=5, output_tokens=8, slots=2)  # 75 ms: 26.7 requests/s
    (over,) = measure(law, tmp_path, {"load": {"kind": "rate", "rate": 80}})
    found = over.levels[0]
    assert (found.verdict, found.decision, over.verdict) == ("overloaded", "fail", "fail")
    cause = next(one for one in found.findings if one.code == "queue_build_up")
    assert cause.evidence["done_rate"] < 0.6 * cause.evidence["offered_rate"]
    (less,) = measure(law, tmp_path / "less", {"load": {"kind": "rate", "rate": 0.5 * cause.evidence["done_rate"]}})
    assert less.levels[0].verdict == "steady", less.levels[0].reasons
    assert less.verdict == "pass"


@pytest.mark.slow
def test_failures_are_misses_with_a_name(tmp_path):
    law = Law(ttft_ms=20, itl_ms=2, output_tokens=8, failure="reset", failure_every=4)
    (result,) = measure(law, tmp_path, {"slo": [{"metric": "e2el", "quantile": 0.9, "limit_ms": 5000}]})
    found = result.levels[0]
    storm = next(one for one in found.findings if one.code == "error_storm")
    assert storm.evidence["codes"].keys() == {"connection_reset"}
    assert found.objectives[0].failed == storm.evidence["failed"] > 5
    assert found.decision == "fail"
    assert found.attainment == pytest.approx(0.75, abs=0.15)
    assert found.metrics["e2el"].n == found.counts.ok


def test_an_endpoint_that_is_down_ends_the_run_with_what_to_do(tmp_path):
    run = Run(read_spec(spec("http://127.0.0.1:9")), tmp_path, Quiet())
    with pytest.raises(RunError) as caught:
        asyncio.run(run.go())
    assert caught.value.code == "endpoint_down"
    assert files.read(tmp_path).state == "incomplete"


def test_a_key_that_is_not_there_is_named(tmp_path):
    given = spec("http://127.0.0.1:9")
    given["endpoint"]["api_key_env"] = "TURSIOPS_TEST_NO_SUCH_KEY"
    with pytest.raises(RunError, match="TURSIOPS_TEST_NO_SUCH_KEY"):
        asyncio.run(Run(read_spec(given), tmp_path, Quiet()).go())


def test_a_tokenizer_that_stops_answering_ends_the_run_and_keeps_what_was_measured(tmp_path, monkeypatch):
    build = traffic.build

    async def broken(*given, first=0, **options):
        if first:
            raise RequestError("http_503: busy")
        return await build(*given, first=first, **options)

    monkeypatch.setattr(traffic, "build", broken)
    closed = {
        "load": {"kind": "concurrency", "concurrency": 2},
        "slo": [{"metric": "e2el", "quantile": 0.5, "limit_ms": 1000, "start": "actual"}],
        "warm_up_s": 0,
    }
    with pytest.raises(RunError, match="http_503") as caught:
        measure(Law(ttft_ms=2, itl_ms=0, output_tokens=2), tmp_path, closed)
    assert caught.value.code == "tokenize_failed"
    kept = files.read(tmp_path / "0")
    assert kept.state == "incomplete"
    assert ["interrupted" in one.reasons for one in kept.levels] == [True]
    assert len(list(files.read_requests(tmp_path / "0"))) > 5


def test_a_level_without_an_answer_ends_the_run_only_where_none_had_any(tmp_path):
    sweep = Run(read_spec(spec("http://127.0.0.1:9", load={"kind": "sweep", "rates": [1, 2, 3]})), tmp_path, Quiet())
    for ok, following in ((0, None), (7, 3)):
        sweep.result.levels = [
            LevelResult(index=0, rate=1, verdict="steady", counts=Counts(ok=ok)),
            LevelResult(index=1, rate=2, verdict="undetermined", reasons=["all_failed"]),
        ]
        assert sweep._next() == following


@pytest.mark.parametrize(
    ("metrics", "same"),
    [
        ("http://Engine:80/metrics", True),
        ("http://engine:8080/metrics", False),
        ("https://engine/metrics", False),
        ("http://other/metrics", False),
    ],
)
def test_a_key_belongs_to_one_scheme_host_and_port(metrics, same):
    assert (run._origin(metrics) == run._origin("http://engine/v1")) is same


@pytest.mark.slow
def test_a_cancelled_run_keeps_what_it_measured_and_goes_on_when_resumed(tmp_path):
    """SIGTERM in the second level of a sweep, to the whole group, as Ctrl-C and the platform's cancel have it: the
    first stays, the rest is measured by --resume."""
    folder, file = tmp_path / "run", tmp_path / "spec.json"

    async def go():
        async with running(LAW) as url:
            file.write_text(json.dumps(spec(url, load={"kind": "sweep", "rates": [18, 19]}, min_requests=25)))
            words = [sys.executable, "-m", "evaluation", "run"]
            child = await asyncio.create_subprocess_exec(
                *words, str(file), "--out", str(folder), cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
            )
            lines = []
            async for line in child.stdout:
                lines.append(json.loads(line))
                if "level 2" in lines[-1].get("text", ""):
                    os.killpg(child.pid, signal.SIGTERM)
                    break
            lines += [json.loads(line) async for line in child.stdout]
            assert await child.wait() == 4
            cut = files.read(folder)
            again = await asyncio.create_subprocess_exec(
                *words, "--resume", str(folder), cwd=ROOT, stdout=subprocess.PIPE
            )
            rest, _ = await again.communicate()
            return lines, cut, [json.loads(line) for line in rest.splitlines()], files.read(folder)

    lines, cut, rest, whole = asyncio.run(go())
    assert lines[-1]["type"] == "report"
    assert lines[-1]["data"]["state"] == cut.state == "incomplete"
    assert [one.rate for one in cut.levels] == [18, 19]
    assert "interrupted" in cut.levels[1].reasons
    assert cut.levels[1].decision == "undetermined"
    assert (whole.state, whole.id, whole.resumed) == ("complete", cut.id, 1)
    assert [one.rate for one in whole.levels] == [18, 19]
    assert whole.levels[0].metrics == cut.levels[0].metrics
    assert "interrupted" not in whole.levels[1].reasons
    assert rest[-1]["type"] == "report"
    assert {line["type"] for line in rest} >= {"progress", "metric", "log", "report"}
