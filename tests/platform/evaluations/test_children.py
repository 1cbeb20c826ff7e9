"""The real child: `python -m evaluation run` against a server whose latencies follow a law, in the gateway's place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tursiops.deployments.models import Deployment, InstanceState
from tursiops.evaluations.models import RunState
from tursiops.jobs import logs
from tursiops.jobs.models import JobMetric

from tests import factories
from tests.platform.evaluations.conftest import worked

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
LAW = {"ttft_ms": 20, "itl_ms": 2}
LOAD = {
    "endpoint": {"api": "completions", "timeout_s": 20},
    "dataset": {"kind": "synthetic", "prompt": {"mean": 20}, "output": {"mean": 10}},
    "load": {"kind": "rate", "rate": 20.0},
    "slo": [{"metric": "e2el", "quantile": 0.9, "limit_ms": 5000}],
    "min_requests": 40,
    "warm_up_s": 0.5,
    "steady": {"min_s": 2, "max_s": 4},
}


@pytest.fixture
def served(team, settings, tmp_path) -> Iterator[Deployment]:
    """A deployment by the name that the law server answers to."""
    settings.DATA_DIR, settings.STORE_DIR = tmp_path / "data", tmp_path / "store"
    words = [sys.executable, "-m", "evaluation.client.servers", "law", "--law", json.dumps(LAW)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:  # ends with stdin
        assert server.stdout is not None
        settings.GATEWAY_HOST, settings.GATEWAY_PORT = "127.0.0.1", int(server.stdout.readline())
        deployment = factories.make_deployment(team, name="law")
        factories.make_instance(deployment, state=InstanceState.READY, node=factories.make_node())
        yield deployment
        server.kill()


def test_a_load_test_measures_the_deployment_through_the_gateway(team, served, started):
    run = worked(started(suite=factories.make_suite(team, spec={"load": LOAD}), deployment=served, seed=5))
    log = logs.read(run.job, 0).text
    assert run.state == RunState.COMPLETED, log
    document = run.results["load"]
    assert (document["seed"], document["spec"]["endpoint"]["model"]) == (5, "law")
    [level] = document["levels"]
    assert level["counts"]["error"] == 0
    assert level["counts"]["offered"] >= 40
    assert level["metrics"]["e2el"]["p50"] >= LAW["ttft_ms"] + 9 * LAW["itl_ms"]  # by the law; more on a busy machine
    assert level["objectives"][0]["decision"] == "pass"
    names = {file.name for file in run.files.all()}
    wanted = {"result.json", "requests.jsonl", "report.html", "summary.csv", "gates.junit.xml", "spec.json"}
    assert {f"load/{name}" for name in wanted} <= names
    assert "ts-" not in json.dumps(document)
    assert JobMetric.objects.filter(job=run.job).exists()
