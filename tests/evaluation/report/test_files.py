"""What a run's folder holds: whole files, JSON by the committed schema, CSV, JUnit, requests read again."""

import csv
import io
import json
from xml.etree import ElementTree as xml

import jsonschema
import pytest

from evaluation.report import files
from evaluation.report.json_schema import PATH, schema, text
from evaluation.report.junit import junit
from evaluation.report.summary_csv import summary_csv
from evaluation.schema import Finding, encode, read_result
from tests.evaluation.report.sample import closed_loop_result, quality_result, records, search_result


@pytest.fixture(scope="module")
def search():
    return search_result(n=200)


def test_the_committed_schema_is_that_of_the_code():
    assert PATH.read_text() == text(), "python -m evaluation.report.json_schema writes it anew"
    jsonschema.Draft202012Validator.check_schema(schema())


def test_results_and_requests_are_valid_by_the_schema(search):
    result, found = search
    whole = jsonschema.Draft202012Validator(schema())
    for each in (result, closed_loop_result(), quality_result()):
        whole.validate(json.loads(encode(each)))
    line = jsonschema.Draft202012Validator({"$ref": "#/$defs/RequestRecord", "$defs": schema()["$defs"]})
    line.validate(json.loads(encode(found[0])))
    wrong = json.loads(encode(result)) | {"verdict": "splendid"}
    assert not whole.is_valid(wrong)


def test_a_folder_is_written_and_read_again(tmp_path, search):
    result, found = search
    files.write(tmp_path, result)
    files.append_requests(tmp_path, found[:3])
    files.append_requests(tmp_path, found[3:5])
    assert {path.name for path in tmp_path.iterdir()} == {
        "result.json",
        "summary.csv",
        "gates.junit.xml",
        "report.html",
        "requests.jsonl",
    }
    assert files.read(tmp_path) == read_result(encode(result))
    assert [record.index for record in files.read_requests(tmp_path)] == [0, 1, 2, 3, 4]


def test_a_line_that_a_killed_run_cut_off_is_left_out(tmp_path):
    files.append_requests(tmp_path, records(4, 3, 1))
    path = tmp_path / files.REQUESTS
    path.write_bytes(path.read_bytes()[:-40])
    assert len(list(files.read_requests(tmp_path))) == 2
    files.append_requests(tmp_path, records(4, 3, 1))
    assert len(list(files.read_requests(tmp_path))) == 5  # the piece is gone, and took no other line with it
    path.write_bytes(b'{"index": "three"}\n' + path.read_bytes())
    with pytest.raises(files.ReportError, match=r"requests\.jsonl: line 1"):
        list(files.read_requests(tmp_path))


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(files.ReportError, match="give the folder that a run wrote"):
        files.read(tmp_path)
    (tmp_path / files.RESULT).write_text('{"id": 3}')
    with pytest.raises(files.ReportError, match=r"\$\.id"):
        files.read(tmp_path)


def test_csv_has_a_row_per_level_with_failures_beside(search):
    rows = list(csv.DictReader(io.StringIO(summary_csv(search[0]))))
    assert [float(row["rate_per_s"]) for row in rows] == [0.5, 1, 2, 4, 6, 6.5, 7, 8, 11.3, 16]
    last = max(search[0].levels, key=lambda level: level.rate)
    assert float(rows[-1]["e2el_intended_p99_ms"]) == last.metrics["e2el_intended"].p99
    assert int(rows[-1]["failed"]) == last.counts.error
    quality = list(csv.DictReader(io.StringIO(summary_csv(quality_result()))))
    assert (quality[0]["task"], quality[0]["errors"]) == ("arc_easy", "19")


def test_a_spreadsheet_computes_nothing_of_a_csv():
    result = quality_result()
    result.quality.tasks[0].name = '=HYPERLINK("http://evil")'
    assert "\r\nq1,1,\"'=HYPERLINK" in summary_csv(result)


def test_junit_of_gates_and_objectives(search):
    suite = xml.fromstring(junit(quality_result())).find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert "91 answers became wrong" in suite.find("testcase/failure").get("message")
    suite = xml.fromstring(junit(search[0])).find("testsuite")
    assert suite.get("failures") == "0"
    names = [case.get("name") for case in suite.findall("testcase")]
    assert names[:2] == ["valid", "capacity"]
    assert any(name.startswith("best point: p95 e2el_intended <= 2000") for name in names)


def test_junit_holds_a_grave_finding_of_a_level_against_a_load():
    result = closed_loop_result()
    result.levels[0].findings = [Finding(code="error_storm", severity="error", cause="x", remedy="y", level=0)]
    suite = xml.fromstring(junit(result)).find("testsuite")
    assert "error_storm" in suite.find("testcase[@name='valid']/error").get("message")


def test_junit_fails_what_is_undetermined_and_what_must_not_be_used(search):
    result = read_result(encode(search[0]))
    result.capacity.low, result.capacity.decision = None, "undetermined"
    result.state = "incomplete"
    result.findings = [Finding(code="client_bound", severity="error", cause="late\x00 client", remedy="more processes")]
    suite = xml.fromstring(junit(result)).find("testsuite")
    outcomes = {case.get("name"): [child.tag for child in case] for case in suite.findall("testcase")}
    assert outcomes["complete"] == outcomes["valid"] == ["error"]
    assert outcomes["capacity"] == ["failure"]
