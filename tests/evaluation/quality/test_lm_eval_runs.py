"""How lm-eval is called, and that what was done is not done again. A stand-in has its name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evaluation.quality.lm_eval_runs import LENGTH, Setup

ROWS = {"bbh": 3, "wikitext": 1, "gsm8k": 2, "ifeval": 2}
INSTANCE: Any = SimpleNamespace(url="http://127.0.0.1:1", name="tiny")
STAND_IN = """
import os, sys
from pathlib import Path

def cli_evaluate():
    if "--fail" in sys.argv:
        sys.exit("no such task")
    folder = Path(sys.argv[sys.argv.index("--output_path") + 1])
    folder.mkdir(parents=True)
    (folder / "said").write_text(" ".join(sys.argv) + " " + os.environ["OPENAI_API_KEY"])
"""


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    package = tmp_path / "packages" / "lm_eval"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    return Setup(tmp_path / "model", Path(sys.executable), tmp_path / "data", tmp_path / "work", ROWS, 1)


def test_both_sides_see_the_same_window_and_rows(setup: Setup) -> None:
    """lm-eval's API back end takes two tokens off its window."""
    ours, peer = (setup.job(side, ["bbh", "wikitext"], INSTANCE)["argv"] for side in ("ours", "hf"))
    assert f"max_length={LENGTH + 2}" in ours[ours.index("--model_args") + 1]
    assert peer[peer.index("--model_args") + 1].endswith(f"max_length={LENGTH}")
    assert "base_url=http://127.0.0.1:1/v1/completions" in ours[ours.index("--model_args") + 1]
    for name in ("--tasks", "--metadata", "--include_path"):
        assert ours[ours.index(name) + 1] == peer[peer.index(name) + 1]
    assert "--apply_chat_template" not in ours
    assert peer[peer.index("--batch_size") + 1] == "1"
    for side in ("ours", "hf"):
        assert "--apply_chat_template" in setup.job(side, ["gsm8k", "ifeval"], INSTANCE)["argv"]


def test_a_job_is_done_once_for_as_many_rows(setup: Setup) -> None:
    runs = [(side, tasks) for tasks in (["bbh", "wikitext"], ["gsm8k", "ifeval"]) for side in ("ours", "hf")]
    assert [setup.done(*run) for run in runs] == [None] * 4
    setup.run([setup.job(*run, INSTANCE) for run in runs], "key")
    for side, tasks in runs:
        said = (setup.folder(side, tasks) / "said").read_text()
        assert said.startswith("lm_eval run --model " + ("local-completions" if side == "ours" else "hf"))
        assert said.endswith(" key")
        done = setup.done(side, tasks)
        assert done is not None
        assert "lm_eval " + " ".join(done["argv"]) + " key" == said
    more = Setup(setup.model, setup.python, setup.data, setup.work, ROWS | {"gsm8k": 9}, 1)
    assert [more.done(*run) is None for run in runs] == [False, False, True, True]


def test_the_first_that_fails_ends_it(setup: Setup) -> None:
    asked = (("hf", "bbh"), ("hf", "gsm8k"), ("ours", "bbh"))
    good, bad, late = (setup.job(side, [name], INSTANCE) for side, name in asked)
    bad["argv"].append("--fail")
    with pytest.raises(subprocess.CalledProcessError):
        setup.run([good, bad, late], "key")
    assert setup.done("hf", ["bbh"]) == json.loads(json.dumps(good))
    assert setup.done("hf", ["gsm8k"]) is None
    assert not setup.folder("ours", ["bbh"]).exists()
