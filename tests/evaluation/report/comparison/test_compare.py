"""Two runs of a simulated server: equal ones are called equal, a slower one is found, a lie is refused."""

import json

import numpy as np
import pytest

from evaluation.quality.results import Figure, QualityResult, Sample, TaskResult
from evaluation.report import files
from evaluation.report.comparison.compare import compare
from evaluation.report.comparison.terminal import text
from evaluation.report.errors import ReportError
from evaluation.report.html.compare import comparison_page
from evaluation.schema import Concurrency, Objective, Rate, ResultDoc, RunSpec, Sweep, encode
from tests.evaluation.report.importers import writers
from tests.evaluation.report.sample import SLO, level_of, records, search_result

RATES = (2.0, 4.0)


def run_of(folder, *, slower=1.0, seed=1, n=600, rates=RATES, **changes):
    """A sweep in a folder, as the runner leaves it."""
    levels, everything = [], []
    for index, rate in enumerate(rates):
        found = records(rate, n, seed * 1_000 + index, level=index, slower=slower)
        everything += found
        levels.append(level_of(found, index, rate, SLO))
    told = search_result(n=20)[0]
    spec = {name: getattr(told.spec, name) for name in ("name", "endpoint", "dataset", "slo")}
    spec |= {"load": Sweep(rates=list(rates))} | changes.pop("spec", {})
    result = ResultDoc(
        id=f"run-{folder.name}-{seed}",
        kind="load",
        state="complete",
        spec=RunSpec(**spec),
        seed=changes.pop("recorded_seed", seed),
        started_at=changes.pop("started_at", f"2026-11-30T05:{seed:02}:00Z"),
        dataset=told.dataset,
        levels=levels,
        verdict="pass",
    )
    for name, value in changes.items():
        setattr(result, name, value)
    files.write(folder, result)
    files.append_requests(folder, everything)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("compare") / "base", seed=1)


def only(comparison):
    assert len(comparison.pairs) == 1
    return comparison.pairs[0]


def codes(pair):
    return {note.code: note.severity for note in pair.notes}


def test_two_runs_of_one_server_do_not_differ(base, tmp_path):
    pair = only(compare([base, run_of(tmp_path / "again", seed=2)]))
    assert pair.comparable
    assert {figure.verdict for figure in pair.figures} <= {"same", "undetermined"}
    assert sum(figure.verdict == "same" for figure in pair.figures) > 20
    assert codes(pair)["one_run_each"] == "info"
    assert {figure.load for figure in pair.figures} == set(RATES)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_equal_runs_differ_in_one_of_twenty_pairs(tmp_path):
    """The family-wise error of a whole comparison: queue, blocks, quantiles and Holm together, at 70 % load."""
    significant, told = 0, 0
    for pair in range(60):
        folders = [run_of(tmp_path / f"{pair}-{side}", seed=200 + 2 * pair + side, rates=(6.5,)) for side in (0, 1)]
        figures = only(compare(folders)).figures
        significant += any(figure.p_adjusted is not None and figure.p_adjusted < 0.05 for figure in figures)
        told += any(figure.verdict in ("better", "worse") for figure in figures)
    assert significant <= 8  # 3 expected; 9 or more of 60 have probability 0.3 %
    assert told <= significant


def test_a_slower_server_is_found_with_its_size(base, tmp_path):
    found = compare([base, run_of(tmp_path / "slow", seed=3, slower=1.15)])
    pair = only(found)
    by_name = {(figure.figure, figure.load): figure for figure in pair.figures}
    tpot = by_name["tpot.mean", 4.0]
    assert tpot.verdict == "worse"
    assert tpot.low < 1.15 < tpot.high
    assert tpot.high - tpot.low < 0.03
    assert by_name["e2el_intended.p50", 4.0].verdict == "worse"
    assert not [figure for figure in pair.figures if figure.verdict == "better"]
    assert found.worse
    assert all(figure.p_adjusted >= figure.p for figure in pair.figures if figure.p is not None)
    assert "tpot.mean" in text(found)
    assert "worse" in comparison_page(found)


def test_a_sure_change_that_does_not_matter_is_no_verdict(base, tmp_path):
    pair = only(compare([base, run_of(tmp_path / "slightly", seed=4, slower=1.02)]))
    tpot = next(figure for figure in pair.figures if figure.figure == "tpot.mean" and figure.load == 4.0)
    assert (tpot.verdict, tpot.reason) == ("same", "below_threshold")
    strict = only(compare([base, tmp_path / "slightly"], threshold=0.01))
    assert next(f for f in strict.figures if f.figure == "tpot.mean" and f.load == 4.0).verdict == "worse"


def test_without_requests_the_intervals_of_the_results_decide(base, tmp_path):
    slow = run_of(tmp_path / "slow", seed=3, slower=1.15)
    (slow / files.REQUESTS).unlink()
    figures = {(f.figure, f.load): f for f in only(compare([base, slow])).figures}
    tpot = figures["tpot.mean", 4.0]
    assert (tpot.method, tpot.verdict) == ("intervals", "worse")
    assert tpot.low < 1.15 < tpot.high
    assert (figures["succeeded", 4.0].verdict, figures["succeeded", 4.0].reason) == ("undetermined", "no_requests")


def test_a_level_that_is_invalid_is_not_compared(base, tmp_path):
    folder = run_of(tmp_path / "late", seed=6, n=60)
    result = files.read(folder)
    result.levels[0].verdict, result.levels[1].verdict = "invalid", "overloaded"
    files.write(folder, result)
    figures = only(compare([base, folder])).figures
    assert {(f.verdict, f.reason) for f in figures if f.load == 2.0} == {("not_comparable", "invalid_level")}
    latencies = {(f.verdict, f.reason) for f in figures if f.load == 4.0 and f.unit == "ms"}
    assert latencies == {("not_comparable", "overloaded")}
    assert next(f for f in figures if f.figure == "done" and f.load == 4.0).verdict != "not_comparable"


def test_a_tail_without_values_is_not_judged(base, tmp_path):
    pair = only(compare([base, run_of(tmp_path / "few", seed=5, n=120)]))
    tail = [figure for figure in pair.figures if figure.figure.endswith("p99")]
    assert tail
    assert {(figure.verdict, figure.reason) for figure in tail} == {("undetermined", "too_few")}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"definitions": 2}, "definitions_differ"),
        ({"verdict": "invalid"}, "invalid_run"),
        ({"spec": {"load": Concurrency(concurrency=4)}}, "loops_differ"),
        ({"spec": {"load": Rate(rate=2.0, arrivals="gamma", burstiness=0.3)}}, "arrivals_differ"),
        ({"kind": "quality"}, "kinds_differ"),
    ],
)
def test_runs_that_must_not_be_compared_are_refused(base, tmp_path, changes, code):
    found = compare([base, run_of(tmp_path / "other", seed=6, n=60, **changes)])
    pair = only(found)
    assert codes(pair)[code] == "error"
    assert not pair.comparable
    assert {figure.verdict for figure in pair.figures} == {"not_comparable"}
    assert found.refused
    assert pair.notes[0].severity == "error"


def test_other_data_and_objectives(base, tmp_path):
    longer = search_result(n=20)[0].spec.dataset
    longer = type(longer)(prompt=longer.output, output=longer.prompt)
    pair = only(compare([base, run_of(tmp_path / "data", seed=6, n=60, spec={"dataset": longer})]))
    assert codes(pair)["datasets_differ"] == "error"
    slo = [Objective(metric="e2el", limit_ms=9_000)]
    pair = only(compare([base, run_of(tmp_path / "slo", seed=6, n=60, spec={"slo": slo})]))
    assert codes(pair)["objectives_differ"] == "warning"


@pytest.mark.parametrize(
    ("measured", "code", "severity"),
    [(0.93, "cache_inflated", "error"), (None, "cache_suspicion", "warning"), (0.014, None, None)],
)
def test_the_same_seed_at_the_same_server(base, tmp_path, measured, code, severity):
    """Case A.1: the second run of one seed is answered by the prefix cache."""
    folder = run_of(tmp_path / "second", seed=7, n=60, recorded_seed=1)
    result = files.read(folder)
    for level in result.levels:
        level.prefix.measured = measured
    files.write(folder, result)
    for pair in (only(compare([base, folder])), only(compare([folder, base]))):  # whichever is named first
        found = codes(pair)
        assert found.get(code or "cache_inflated") == severity
        assert pair.comparable == (severity != "error")
    other = run_of(tmp_path / "fresh", seed=8, n=60)
    assert not {"cache_inflated", "cache_suspicion"} & set(codes(only(compare([base, other]))))


def test_capacities_differ_where_their_intervals_do_not_touch(tmp_path):
    folders = []
    for name, low, high in (("a", 8.0, 8.4), ("b", 6.0, 6.2), ("c", 8.2, 8.8)):
        result = search_result(n=20)[0]
        result.id, result.capacity.low, result.capacity.high = name, low, high
        result.capacity.decision = "certified"
        files.write(tmp_path / name, result)
        folders.append(tmp_path / name)
    first, second = compare(folders).pairs
    verdicts = [next(f for f in pair.figures if f.figure == "capacity").verdict for pair in (first, second)]
    assert verdicts == ["worse", "same"]


def test_no_common_load(base, tmp_path):
    pair = only(compare([base, run_of(tmp_path / "else", seed=9, n=60, rates=(3.0,))]))
    assert codes(pair)["no_common_load"] == "warning"
    assert pair.figures == []


def test_repeats_are_tested_run_by_run(tmp_path):
    """Five runs a side: the exact permutation of runs, and Hodges-Lehmann's interval."""
    for side, slower in (("a", 1.0), ("b", 1.2)):
        for repeat in range(5):
            seed = 20 + repeat + (50 if side == "b" else 0)
            run_of(tmp_path / side / f"{repeat}", seed=seed, n=150, slower=slower, rates=(2.0,), started_at="2026")
    pair = only(compare([tmp_path / "a", tmp_path / "b"]))
    assert pair.other.runs == 5
    assert "one_run_each" not in codes(pair)
    tpot = next(figure for figure in pair.figures if figure.figure == "tpot.p95")
    assert tpot.method == "permutation"
    assert tpot.p == pytest.approx(2 / 252)
    assert (tpot.base_n, tpot.other_n) == (5, 5)
    assert tpot.low <= 1.2 <= tpot.high
    assert tpot.verdict == "worse"


def test_a_file_of_another_tool_stands_beside_a_run(base, tmp_path):
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(writers.vllm(records(4.0, 600, 77), 4.0)))
    pair = only(compare([base, path]))
    assert pair.other.source == "vllm bench serve"
    assert codes(pair)["workload_unknown"] == "warning"
    names = {figure.figure for figure in pair.figures if figure.load == 4.0}
    assert {"e2el.p95", "tpot.mean"} <= names  # from sending: the plan's times are not there
    assert "e2el_intended.p95" not in names


def test_a_folder_of_another_tool(base, tmp_path):
    writers.evalscope(records(4.0, 60, 78), tmp_path, 4.0, role=True)
    assert only(compare([base, tmp_path])).other.source == "evalscope perf"


def quality_run(folder, scores, items="same"):
    scores = np.asarray(scores, dtype=float)
    share = Figure(value=float(scores.mean()), low=0.0, high=1.0, n=len(scores))
    task = TaskResult(name="gsm8k", kind="x", primary="accuracy", figures={"accuracy": share}, items=len(scores))
    task.state, task.samples, task.measured = "complete", "samples/gsm8k.jsonl", len(scores)
    task.dataset = {"sha256": items}
    lines = [encode(Sample(id=str(i), score=float(score))) for i, score in enumerate(scores)]
    (folder / "samples").mkdir(parents=True)
    (folder / task.samples).write_bytes(b"\n".join(lines) + b"\n")
    result = ResultDoc(id=folder.name, kind="quality", state="complete", quality=QualityResult(tasks=[task]))
    files.write(folder, result)
    return folder


def test_quality_is_compared_item_by_item(tmp_path):
    before = [1] * 70 + [0] * 30
    first = quality_run(tmp_path / "before", before)
    worse = quality_run(tmp_path / "worse", [0] * 15 + [1] * 55 + [1] * 2 + [0] * 28)
    figure = next(f for f in only(compare([first, worse])).figures if f.figure == "gsm8k.accuracy")
    assert (figure.regressed, figure.improved, figure.method) == (15, 2, "mcnemar")
    assert figure.p == pytest.approx(2 * sum([1, 17, 136]) / 2**17)
    assert figure.verdict == "worse"
    other = quality_run(tmp_path / "other", before, items="others")
    figure = only(compare([first, other])).figures[0]
    assert (figure.verdict, figure.reason) == ("not_comparable", "datasets_differ")


def test_what_is_no_result(base, tmp_path):
    with pytest.raises(ReportError, match="neither a folder"):
        compare([base, tmp_path])
    with pytest.raises(ValueError, match="two results"):
        compare([base])


def test_a_page_obeys_nothing_of_the_data(base, tmp_path):
    evil = "<script>alert(1)</script>\x1b[31m"
    folder = run_of(tmp_path / "evil", seed=11, n=60, environment={evil: evil})
    found = compare([base, folder])
    found.pairs[0].other.name = evil
    page = comparison_page(found)
    assert "<script" not in page
    assert "\x1b" not in text(found)
