"""lm-eval behind our door: what it is called with and asks, what is read of its files, and its end with the run's.

lm-eval itself isn't there in CI; a program of its name asks the same questions over HTTP and writes files of its form.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from evaluation.quality import lm_eval_bridge, lm_eval_environment
from evaluation.quality.endpoint import Connection
from evaluation.quality.lm_eval_environment import EnvironmentFault, LmEvalEnvironment, ensure
from evaluation.quality.lm_eval_import import figure
from evaluation.quality.lm_eval_proxy import Proxy
from evaluation.quality.run import QualityRun
from evaluation.quality.suite import read_suite
from evaluation.schema import Endpoint, read_result
from tests.evaluation.quality.servers import Bigram, served
from tests.evaluation.quality.suites import quiet, run, task

STAND_IN = """
import json, os, sys, time, urllib.request
from pathlib import Path

def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)

def cli_evaluate():
    told = dict(zip(sys.argv, sys.argv[1:]))
    options = dict(pair.split("=", 1) for pair in told["--model_args"].split(","))
    base = options["base_url"].removesuffix("/v1/completions")
    assert options["tokenizer_backend"] == "remote"
    assert ask(base + "/tokenizer_info")["eos_token"]
    metadata = json.loads(told["--metadata"])
    samples = []
    for number, question in enumerate(["1?", "2?", "3?", "4?"][: int(told.get("--limit", 4))]):
        wholes = [ask(base + "/tokenize", {"prompt": f"{question} {choice}"})["tokens"] for choice in "ab"]
        body = {"prompt": wholes, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0, "seed": 1234}
        found = sorted(ask(options["base_url"], body)["choices"], key=lambda each: each["index"])
        sums = [sum(each["logprobs"]["token_logprobs"][3:-1]) for each in found]
        best = sums.index(max(sums))
        arguments = {f"gen_args_{at}": {"arg_0": question, "arg_1": f" {choice}"} for at, choice in enumerate("ab")}
        pairs = [[str(value), "False"] for value in sums]
        samples.append({"doc_id": number, "doc": {}, "target": "0", "arguments": arguments, "resps": [pairs],
                        "filtered_resps": pairs, "filter": "none", "metrics": ["acc"], "prompt_hash": "x",
                        "acc": float(best == 0)})
        time.sleep(float(os.environ.get("SLOW", "0")) or (30 if "slow" in metadata["data"] else 0))
    if "--fail" in told["--tasks"]:
        sys.exit("no such task")
    folder = Path(told["--output_path"]) / "bigram"
    folder.mkdir(parents=True)
    text = "".join(json.dumps(each) + "\\n" for each in samples)
    (folder / "samples_tursiops_bbh_now.jsonl").write_text(text)
    config = {"metric_list": [{"metric": "acc"}], "output_type": "multiple_choice"}
    results = {"configs": {"tursiops_bbh": config}, "n-samples": {"tursiops_bbh": {"effective": len(samples)}}}
    (folder / "results_now.json").write_text(json.dumps(results))
    (folder / "keys").write_text(json.dumps(dict(os.environ)))
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "packages" / "lm_eval"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(STAND_IN)
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={package.parent} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    found = LmEvalEnvironment(tmp_path / "environment")
    monkeypatch.setattr(lm_eval_bridge, "ensure", lambda folder, say: found)


def suite(engine: Bigram, **fields: Any) -> dict[str, Any]:
    one = {"kind": "lm_eval", "name": "scored", "tasks": ["tursiops_bbh"], **fields}
    return {"endpoint": {"url": engine.url, "api_key_env": "QUALITY_TEST_KEY"}, "tasks": [one]}


@pytest.mark.usefixtures("stand_in")
def test_its_results_are_figures_and_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUALITY_TEST_KEY", "s3cret")
    engine = Bigram()
    with served(engine):
        doc = run(suite(engine), tmp_path)
        asked = len(engine.told)
        again = run(suite(engine), tmp_path)
    assert doc.state == "complete", doc.findings
    best = [int(engine.rows[32, ord("a")] > engine.rows[32, ord("b")])] * 4
    found = task(doc, "scored:tursiops_bbh")
    assert found.figures["acc"].value == sum(best) / 4
    assert (found.figures["acc"].method, found.chance, found.items) == ("clopper_pearson", 0.5, 4)
    sample = json.loads((tmp_path / "out" / found.samples).read_text().splitlines()[0])
    assert (sample["prompt"], sample["expected"], sample["data"]["choices"]) == ("1?", "a", ["a", "b"])
    assert {body["model"] for body in engine.told} == {"bigram"}
    assert len(engine.told) == asked, "what was done is not asked again"
    assert task(again, "scored:tursiops_bbh") == found
    (keys,) = (tmp_path / "out").rglob("keys")
    assert "s3cret" not in keys.read_text(), "lm-eval has no key: its door does"


@pytest.mark.usefixtures("stand_in")
def test_one_that_fails_leaves_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUALITY_TEST_KEY", "key")
    engine = Bigram()
    with served(engine):
        doc = run(suite(engine, tasks=["--fail"], rows=1), tmp_path)
    (finding,) = doc.findings
    assert finding.code == "lm_eval_failed"
    assert "no such task" in finding.cause
    assert doc.state == "incomplete"


@pytest.mark.usefixtures("stand_in")
def test_an_endpoint_that_breaks_is_named_and_lm_eval_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUALITY_TEST_KEY", "key")
    engine = Bigram()
    engine.fault = "500"
    with served(engine):
        doc = run(suite(engine), tmp_path)
    assert [finding.code for finding in doc.findings] == ["endpoint_failed"]


def command(process: psutil.Process) -> str:
    """Of one that has just ended none."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


@pytest.mark.usefixtures("stand_in")
def test_a_cancelled_run_ends_lm_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUALITY_TEST_KEY", "key")
    engine = Bigram()
    (tmp_path / "slow").mkdir()

    async def cut_short() -> list[psutil.Process]:
        quality = QualityRun(read_suite(suite(engine, data="slow")), tmp_path, tmp_path / "out", quiet)
        going = asyncio.ensure_future(quality.run())
        while not engine.told:
            await asyncio.sleep(0.02)
        children = [each for each in psutil.Process().children(recursive=True) if "lm_eval_driver" in command(each)]
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        return children

    with served(engine):
        children = asyncio.run(cut_short())
    assert children
    end = time.monotonic() + 10
    while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert read_result((tmp_path / "out/result.json").read_bytes()).state == "incomplete"


def test_each_kind_of_value_has_its_interval() -> None:
    assert figure("acc", [1.0, 0.0, 1.0]).method == "clopper_pearson"
    found = figure("word_perplexity", [[-30.0, 10], [-20.0, 10], [-25.0, 10]])
    assert found.value == pytest.approx(12.1825, abs=1e-4)  # exp(75 / 30)
    assert found.unit == "perplexity"
    assert found.low is not None
    assert found.low < 12.1825
    assert figure("f1", [0.5, 0.25, 1.0]).method == "bootstrap"


def test_an_environment_that_can_not_be_made_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that is there is taken as it is, unless it was made for other packages."""
    folder = tmp_path / "environment"
    folder.mkdir()
    stamp = folder / "stamp.json"
    stamp.write_text(json.dumps(list(lm_eval_environment.PACKAGES)))
    said: list[str] = []
    assert ensure(folder, said.append).python == folder / "bin" / "python"
    assert said == []
    stamp.write_text('["lm-eval==0.1"]')
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no room left >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(EnvironmentFault, match="no room left"):
        ensure(folder, said.append)
    assert said
    assert not stamp.exists()


async def test_the_door_before_a_gateway() -> None:
    """Which has /v1/tokenize alone, and no /tokenizer_info. Chats go through as they are, to the endpoint's model."""
    told: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        told.append(await request.json())
        return web.json_response({"tokens": [1, 2], "choices": [{}]})

    app = web.Application()
    app.router.add_post("/v1/tokenize", answer)
    app.router.add_post("/v1/chat/completions", answer)
    server = TestServer(app)
    await server.start_server()
    endpoint = Endpoint(url=str(server.make_url("")), model="m", extra_body={"top_k": 1})
    messages = [{"role": "user", "content": "hi"}]
    counted: list[int] = []
    async with Connection(endpoint, 2) as asked, Proxy(asked, counted.append) as door, ClientSession() as session:
        async with session.post(f"{door.url}/tokenize", json={"prompt": "hi"}) as response:
            assert (await response.json())["tokens"] == [1, 2]
        async with session.post(f"{door.url}/v1/chat/completions", json={"messages": messages}) as response:
            assert response.status == 200
        assert door.failure is None
        async with session.get(f"{door.url}/tokenizer_info") as response:
            assert response.status == 502
        assert door.failure is not None
        assert door.failure.code == "no_tokenizer"
        async with session.post(f"{door.url}/v1/completions", json={"prompt": [[1]]}) as response:
            assert response.status == 502
        assert door.failure.code == "endpoint_refused"
    assert told == [{"prompt": "hi", "model": "m"}, {"messages": messages, "model": "m", "top_k": 1}]
    assert counted == [1]
    await server.close()
