"""The page: nothing of the data is obeyed, both languages say the same, and figures stand with their failures."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from evaluation.report.html import texts
from evaluation.report.html.compare_texts import NOTES
from evaluation.report.html.finding_texts import CHINESE
from evaluation.report.html.findings import all_findings
from evaluation.report.html.markup import escape, h
from evaluation.report.html.numbers import change, duration, number, percent
from evaluation.report.html.page import report
from evaluation.report.html.scales import Scale, fitting
from evaluation.report.reading import best_level, knee
from evaluation.schema import Finding, ResultDoc, encode, read_result
from tests.evaluation.report.sample import closed_loop_result, quality_result, search_result

HOSTILE = "</style><script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x00\u202eevil"


@pytest.fixture(scope="module")
def search() -> ResultDoc:
    return search_result(n=200)[0]


class Reader(HTMLParser):
    """Elements and attributes as a browser sees them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def hostile(result: ResultDoc) -> ResultDoc:
    """Every text of a result that comes from outside."""
    made = read_result(encode(result))
    made.environment = {HOSTILE: HOSTILE}
    made.id = HOSTILE
    made.findings = [
        Finding(code=HOSTILE, severity="error", cause=HOSTILE, remedy=HOSTILE, evidence={HOSTILE: HOSTILE})
    ]
    for level in made.levels:
        level.reasons = [HOSTILE]
        level.metrics[HOSTILE] = next(iter(level.metrics.values()))
    for task in made.quality.tasks if made.quality else []:
        task.name = HOSTILE
    for gate in made.quality.gates if made.quality else []:
        gate.name = gate.rule = gate.reason = HOSTILE
    return made


@pytest.mark.parametrize("make", [lambda: search_result(n=60)[0], quality_result, closed_loop_result])
def test_nothing_from_outside_is_obeyed(make):
    page = Reader(report(hostile(make())))
    assert not page.open
    assert not {"script", "img", "iframe", "link", "object", "base", "form", "a"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("href", "src", "style")]
    assert "<script>alert(1)</script>" in page.text  # shown as it is
    assert "\x00" not in page.text
    assert "\u202e" not in page.text


def test_the_policy_allows_its_own_style_and_nothing_else(search):
    page = report(search)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)[1]
    assert policy.startswith("default-src &#x27;none&#x27;; style-src &#x27;sha256-")
    assert not re.search(r"https?://(?!127\.0\.0\.1:8000)", page)
    assert "url(" not in page
    assert page.count("<style>") == 1


def test_every_text_has_both_languages():
    both = [*texts.TEXTS.items(), *((code, text) for words in texts.WORDS.values() for code, text in words.items())]
    fields = re.compile(r"\{(\w+)\}")
    for key, (english, chinese) in both:
        assert english, key
        assert chinese, key
        assert sorted(fields.findall(english)) == sorted(fields.findall(chinese)), key
    assert all(NOTES.values())


def test_findings_of_the_runner_have_chinese():
    """By the codes that the sources name, so that a new one is not forgotten."""
    import evaluation.quality.alarms
    import evaluation.report.importers.build
    import evaluation.runner.diagnose
    import evaluation.runner.run
    import evaluation.runner.search

    modules = (evaluation.runner.diagnose, evaluation.runner.run, evaluation.runner.search)
    found: set[str] = set()
    for module in (*modules, evaluation.quality.alarms, evaluation.report.importers.build):
        source = Path(module.__file__).read_text()
        found |= set(re.findall(r'_finding\(\s*"(\w+)"', source)) | set(re.findall(r'Finding\(\s*code="(\w+)"', source))
        found |= set(re.findall(r'add\("(?:warning|error)", "(\w+)"', source))
    assert len(found) > 20
    assert found - CHINESE.keys() == set()


def test_chinese_of_a_finding_takes_the_evidence_or_stays_english(search):
    result = read_result(encode(search))
    result.findings = [
        Finding(
            code="cache_inflated",
            severity="error",
            cause="More hits than repeats.",
            remedy="Fresh seed.",
            evidence={"expected": 0.01, "measured": "<b>0.93</b>"},
        ),
        Finding(code="cache_inflated", severity="error", cause="No evidence.", remedy="Fresh seed.", level=3),
    ]
    page = report(result)
    assert "前缀缓存命中（&lt;b&gt;0.93&lt;/b&gt;）多于数据集自身的重复（0.01）" in page
    assert page.index("Do not use these figures") < page.index("Levels")


def test_alerts_come_before_every_figure(search):
    result = read_result(encode(search))
    result.verdict, result.state = "invalid", "incomplete"
    page = report(result)
    assert page.index("Do not use these figures") < page.index("<svg")
    assert page.index("The run did not end") < page.index("<svg")


def test_failures_stand_beside_the_figures(search):
    page = Reader(report(search)).text
    level = max(search.levels, key=lambda level: level.counts.error)
    assert level.counts.error > 0
    assert f"{level.counts.offered:,} / {level.counts.error}" in page
    assert f"{best_level(search).counts.offered} requests, {best_level(search).counts.error} failed" in page


def test_the_chart_holds_limit_interval_knee_and_best_point(search):
    page = report(search)
    for what in (
        'class="slo"',
        'class="certified"',
        'class="knee"',
        'class="halo best"',
        'class="mark triangle error"',
    ):
        assert what in page, what
    assert 'class="plot' not in report(quality_result())


def test_a_level_without_figures_makes_a_page():
    """Nothing succeeded: nulls are dashes, no chart is drawn from nothing."""
    result = closed_loop_result()
    result.levels[0].metrics, result.levels[0].series, result.levels[0].window = {}, {}, None
    result.levels[0].done_rate = None
    assert "Nothing was measured at this level" in report(result)
    result.levels = []
    assert "<h1>" in report(result)


def test_findings_are_told_once_and_the_grave_first(search):
    result = read_result(encode(search))
    repeated = result.levels[-5].findings + result.levels[5].findings
    result.findings += [finding for finding in repeated if finding.level is not None]
    codes = [(finding.code, finding.level) for finding in all_findings(result)]
    assert len(codes) == len(set(codes))
    assert all_findings(result)[0].severity == "warning"


def test_a_finding_of_many_levels_is_one_card(search):
    result = read_result(encode(search))
    for level in result.levels:
        told = {"tokens_per_chunk": 3.5 + level.index}
        level.findings = [Finding(code="chunks_are_not_tokens", severity="info", cause="c", remedy="r", evidence=told)]
    page = report(result)
    assert page.count("<article") == 2  # and the run's own
    assert all(f" {3.5 + level.index:g}</span>" in page for level in result.levels)


def test_a_run_without_a_name_is_called_by_its_model():
    result = closed_loop_result()
    assert "<h1>closed" in report(result)
    result.environment = {"endpoint": {"model": "qwen<2>", "url": "http://x"}}
    assert "<h1>qwen&lt;2&gt; " in report(result)


def test_elements_are_closed_and_attributes_are_quoted():
    made = h("p", "a<b", h("b", 3), None, ["x", ["y"]], class_='"><i>', data_n=1, hidden=False)
    assert made == '<p class="&quot;&gt;&lt;i&gt;" data-n="1">a&lt;b<b>3</b>xy</p>'
    assert escape("\u202eabc\ud800") == "[U+202E]abc\ufffd"


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (number(0.012345), "0.0123"),
        (number(1234.6), "1,235"),
        (number(None), "–"),
        (number(float("nan")), "–"),
        (number(100), "100"),
        (percent(0.99996), ">99.9 %"),
        (percent(0.00001), "<0.1 %"),
        (percent(1), "100 %"),
        (duration(12_345), "12.3 s"),
        (change(0.9), "−10.0 %"),
    ],
)
def test_numbers(made, shown):
    assert made == shown


def test_ticks_are_round_and_within():
    assert Scale(0, 9.7, 0, 100).ticks() == [0, 2, 4, 6, 8]
    assert Scale(0.4, 20, 0, 100, log=True).ticks() == [0.5, 1, 2, 5, 10, 20]
    assert fitting([1, 2, 3], 0, 10).log is False
    assert fitting([1, 200], 0, 10).log is True
    assert Scale(0, 10, 50, 0)(20) == 0  # beyond the end lies on the end


def test_the_knee_of_a_queue():
    """Latency 1 / (1 − load / 10): it bends at about 7; a straight line does not bend."""
    loads = [1, 2, 3, 4, 5, 6, 7, 8, 9, 9.5]
    assert 5 <= knee([(load, 100 / (1 - load / 10)) for load in loads]) <= 8
    assert knee([(load, 100 * load) for load in loads]) is None
    assert knee([(load, 100.0) for load in loads]) is None
    assert knee([(1, 5)]) is None
