"""A real instance that speculates: what its answers say of guesses, and its figures, agree with each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engines.instances import Running
from tests.tiny_models import write_safetensors

pytestmark = [pytest.mark.speculation, pytest.mark.slow]
ASKED = {"prompt": [5, 9, 60, 3] * 8, "max_tokens": 64, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_safetensors(tmp_path_factory.mktemp("speculation") / "m")


@contextmanager
def serving(
    model: Path, speculation: str, draft: Path | None = None, cache_dir: Path | None = None
) -> Iterator[Running]:
    made = Running(
        model,
        draft=draft,
        cache_dir=str(cache_dir or ""),
        module="tests.engines.scripted_instance",
        script={"core": "tests.engines.eager_core"},
        max_num_seqs=4,
        max_model_len=128,
        options={"speculation": speculation},
    )
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def running(model: Path) -> Iterator[Running]:
    with serving(model, "ngram") as made:
        yield made


def figures(running: Running) -> dict[str, Any]:
    return running.client.get(running.url + "/debug/speculation").json()


def test_pieces_usage_and_figures_agree(running: Running) -> None:
    plain = running.complete(**ASKED)["choices"][0]
    assert "tursiops" not in plain
    told = running.complete(**ASKED, return_draft_sources=True)
    choice = told["choices"][0]
    pieces = choice["tursiops"]["pieces"]
    assert choice["text"] == plain["text"] == "".join(piece["text"] for piece in pieces)
    assert {piece["source"] for piece in pieces} == {None, "ngram"}
    details = told["usage"]["completion_tokens_details"]
    assert 0 < details["accepted_prediction_tokens"] < ASKED["max_tokens"]
    assert details["rejected_prediction_tokens"] >= 0
    events = running.events("/v1/completions", {**ASKED, "return_draft_sources": True})
    choices = [event["choices"][0] for event in events if event != "[DONE]" and event["choices"]]
    for each in choices:
        assert "".join(piece["text"] for piece in each["tursiops"]["pieces"]) == each["text"]
    assert "".join(each["text"] for each in choices) == plain["text"]


def test_figures_add_up_and_are_the_same_in_prometheus(running: Running) -> None:
    usage = running.complete(**ASKED)["usage"]
    accepted = usage["completion_tokens_details"]["accepted_prediction_tokens"]
    told = figures(running)
    assert (told["mode"], told["proposers"]) == ("ngram", ["ngram"])
    found = told["since_start"]
    assert found["accepted_tokens"] == sum(source["accepted"] for source in found["sources"]) >= accepted > 0
    assert found["guessed_tokens"] <= found["accepted_tokens"] < found["drafted_tokens"] + 1
    assert found["steps"] > found["verified_steps"] > 0
    assert found["tokens_per_step"] > 1
    for source in found["sources"]:
        labels = f'result="accepted",source="{source["source"]}"'
        assert running.metric(f"speculation_guessed_tokens_total{{{labels}}}") == source["accepted"]
    assert running.metric('speculation_steps_total{kind="verify"}') == found["verified_steps"]
    assert running.metric("speculation_saved_seconds") == pytest.approx(found["saved_s"])
    assert found["acceptance_length"] == 1 + found["accepted_tokens"] / found["rows"]


def test_figures_are_behind_the_token(running: Running) -> None:
    answer = running.client.get(running.url + "/debug/speculation", headers={"Authorization": "Bearer wrong"})
    assert answer.status_code == 401


def test_a_draft_of_the_launch_spec_is_loaded(model: Path, running: Running) -> None:
    """From the files of `LaunchSpec.draft`: an engine that is asked to draft and has none does not start."""
    said = running.complete(**ASKED)["choices"][0]["text"]
    with serving(model, "draft", draft=model) as drafting:
        assert drafting.complete(**ASKED)["choices"][0]["text"] == said
        told = figures(drafting)
    assert (told["mode"], told["proposers"]) == ("draft", ["draft"])
    assert [source["source"] for source in told["since_start"]["sources"]] == ["draft"]


def test_the_next_start_of_a_deployment_knows_what_was_said_before(model: Path, tmp_path: Path) -> None:
    """In another run folder, as a restarted or an added instance has one."""
    once = {"prompt": [5, 9, 60, 3, 17, 44], "max_tokens": 48, "temperature": 1, "seed": 7, "ignore_eos": True}

    def accepted() -> tuple[str, int]:
        with serving(model, "lookahead", cache_dir=tmp_path) as running:
            answer = running.complete(**once)
        return answer["choices"][0]["text"], answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"]

    said, cold = accepted()
    again, warm = accepted()
    assert again == said
    assert warm >= 36, "nearly all of it was said before"
    assert cold < 12, "drawn from a random model, it repeats little of itself"
    assert [path.name for path in tmp_path.iterdir()] == ["lookahead.bin"]
