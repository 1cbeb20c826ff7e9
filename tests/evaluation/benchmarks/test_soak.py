"""The soak on a CPU, for seconds: a sound engine passes it, and one with a defect does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from engines.native.blocks import BlockPool
from engines.native.request import Finish, Request
from engines.native.rows import RowTable
from engines.native.scheduler import Scheduler
from evaluation.benchmarks import soak
from evaluation.benchmarks.soak_checks import Memory, fifths

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_sound_engine_passes_and_has_been_put_under_pressure(tmp_path: Path) -> None:
    """One round: a burst, some hundred turns, and until all that was asked has ended."""
    assert soak.main(["--minutes", "0.001", "--seed", "2", "--commit", "abc", "--out", str(tmp_path)]) == 0
    body = json.loads((tmp_path / "soak.cpu.json").read_text())
    assert (body["commit"], body["command"].split()[2]) == ("abc", "evaluation.benchmarks.soak")
    values = {row["metric"]: row["value"] for row in body["rows"]}
    assert values["violations"] == 0
    assert values["requests"] == sum(values[f"ended: {finish}"] for finish in Finish) > 0
    assert values["preemptions"] > 0
    assert values["ended: abort"] > 0
    assert values["check() calls"] == values["steps"] + values["idle moments"] > 0


def leaks_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    release = BlockPool.release
    monkeypatch.setattr(BlockPool, "release", lambda pool, blocks, fence: release(pool, blocks[1:], fence))


def loses_an_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = Scheduler.settle

    def losing(
        scheduler: Scheduler, request: Request, finish: Finish | None, message: str = "", code: str = ""
    ) -> None:
        settle(scheduler, request, finish, message, code)
        if finish is Finish.LENGTH:
            scheduler.endings.pop()

    monkeypatch.setattr(Scheduler, "settle", losing)


def says_one_token_more(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = RowTable.fill
    monkeypatch.setattr(RowTable, "fill", lambda table, row, request, most: fill(table, row, request, most + 1))


def forgets_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowTable, "clear", lambda table, row: None)


def raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(pool: BlockPool, step: int) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(BlockPool, "settle", broken)


@pytest.mark.parametrize(
    ("defect", "said"),
    [
        (leaks_a_block, "references and"),
        (loses_an_ending, "requests that never ended are left"),
        (says_one_token_more, "can't end so"),
        (forgets_a_row, "rows are left"),
        (raises, "ZeroDivisionError: a defect"),
    ],
)
def test_a_defect_is_told_with_its_seed(
    defect: Callable[[pytest.MonkeyPatch], None],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    defect(monkeypatch)
    assert soak.main(["--minutes", "0.1", "--seed", "7", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert said in printed
    assert "--seed 7, in step" in printed
    assert "asked 1, " in printed
    (row,) = [row for row in json.loads((tmp_path / "soak.cpu.json").read_text())["rows"] if row["target"] is not None]
    assert (row["metric"], row["ok"]) == ("violations", False)


@pytest.mark.parametrize(("last", "judged", "ok"), [(101, True, True), (103, True, False), (103, False, None)])
def test_memory_is_judged_by_fifths(last: int, judged: bool, ok: bool | None) -> None:
    memory = Memory(torch.device("cpu"))
    samples = [50 << 20] * 4 + [100 << 20] * 4 + [300 << 20] * 8 + [last << 20] * 4
    assert fifths(samples) == (100, last)
    memory.samples["host"] = samples
    (row,) = memory.rows("case", judged)
    assert row.value == pytest.approx(last - 100)
    assert row.ok is ok
