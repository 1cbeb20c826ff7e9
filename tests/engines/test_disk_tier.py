"""The disk below the host's prefix cache, on the fake runner and a real folder. Names carry the cases of
cases/engine.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.native.request import Finish, SamplingParams
from tests.engines.driver import Driver
from tests.engines.fake_runner import expected

PROMPT = [*range(20), 3]  # five full blocks, and the token that must be computed


def alone(prompt: list[int], **params: int) -> list[int]:
    return expected(prompt, SamplingParams(**params), 64)  # type: ignore[arg-type]


def driver(folder: Path, **options: Any) -> Driver:
    return Driver(**{"blocks": 40, "rows": 2, "budget": 30, "host_blocks": 40, "disk": folder} | options)


def answer(engine: Driver, prompt: list[int], max_tokens: int = 2, **options: Any) -> int:
    number = engine.add(prompt, max_tokens=max_tokens, **options)
    engine.run()
    assert engine.tokens[number] == alone(prompt, max_tokens=max_tokens)
    return number


def counts(engine: Driver) -> dict[str, int]:
    assert engine.disk is not None
    found = engine.disk.tier.counts()
    return {name: getattr(found, name) for name in ("hits", "misses", "dropped", "late", "invalid", "errors")}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_e4_a_restarted_engine_reads_what_the_one_before_it_computed(tmp_path: Path, depth: int) -> None:
    first = driver(tmp_path, depth=depth)
    answer(first, PROMPT)
    assert counts(first) == {"hits": 0, "misses": 5, "dropped": 0, "late": 0, "invalid": 0, "errors": 0}
    again = driver(tmp_path, depth=depth)
    number = answer(again, PROMPT)
    assert again.cached[number] == 20
    assert again.runner.computed_tokens == 2
    assert counts(again)["hits"] == 5
    longer = driver(tmp_path, depth=depth)
    number = answer(longer, [*PROMPT, 1, 2, 3, 4, 5, 6], max_tokens=3)
    assert longer.cached[number] == 20


def test_the_answer_is_kept_too(tmp_path: Path) -> None:
    first = driver(tmp_path)
    number = answer(first, PROMPT, max_tokens=12)
    said = first.tokens[number]
    again = driver(tmp_path)
    number = answer(again, [*PROMPT, *said, 9])
    assert again.cached[number] == 32


def test_nothing_is_written_twice(tmp_path: Path) -> None:
    for _ in range(2):
        engine = driver(tmp_path, blocks=12)
        for first in range(4):
            answer(engine, [first, *PROMPT])
            answer(engine, [first, *PROMPT])
    assert engine.disk is not None
    assert engine.disk.store.counts.written == 0
    assert counts(engine)["dropped"] == 0


def test_e5_tenants_models_and_other_tokens_do_not_meet(tmp_path: Path) -> None:
    answer(driver(tmp_path), PROMPT, salt="a")
    for options in ({"salt": "b"}, {"salt": ""}):
        engine = driver(tmp_path)
        assert engine.cached[answer(engine, PROMPT, **options)] == 0
    engine = driver(tmp_path, identity=b"g" * 32)
    assert engine.cached[answer(engine, PROMPT, salt="a")] == 0
    engine = driver(tmp_path)
    assert engine.cached[answer(engine, [*PROMPT[:6], 49, *PROMPT[7:]], salt="a")] == 4
    assert engine.cached[answer(engine, PROMPT, salt="a")] == 20


def test_a_salt_that_looks_like_an_identity_is_none(tmp_path: Path) -> None:
    first = driver(tmp_path)
    answer(first, PROMPT)
    prefix = first.scheduler.pool.match(first_blocks(PROMPT, 2), "")[1]
    assert isinstance(prefix, int)
    for salt in (str(prefix), f"{prefix:064x}", prefix.to_bytes(32, "big").decode("latin-1")):
        engine = driver(tmp_path)
        assert engine.cached[answer(engine, PROMPT[8:], salt=salt)] == 0


def first_blocks(prompt: list[int], count: int) -> Any:
    return np.array(prompt[: 4 * count], np.int32)


@pytest.mark.parametrize("broken", range(5))
def test_a_torn_file_costs_its_block_and_what_follows_never_a_token(tmp_path: Path, broken: int) -> None:
    answer(driver(tmp_path), PROMPT)
    (path,) = tmp_path.rglob(f"*-{broken}.kv")
    data = bytearray(path.read_bytes())
    data[-5] ^= 16
    path.write_bytes(data)
    engine = driver(tmp_path)
    assert engine.cached[answer(engine, PROMPT)] == 4 * broken
    assert counts(engine) == {"hits": 4, "misses": 1, "dropped": 0, "late": 0, "invalid": 1, "errors": 0}
    again = driver(tmp_path)
    assert again.cached[answer(again, PROMPT)] == 20, "it was written anew"


def test_others_go_on_while_a_request_waits_for_the_disk(tmp_path: Path) -> None:
    answer(driver(tmp_path), PROMPT)
    engine = driver(tmp_path)
    engine.disk_works = False
    other = engine.add([40, 41, 42], max_tokens=8)
    waiting = engine.add(PROMPT, max_tokens=3)
    behind = engine.add([43, 44], max_tokens=2)
    for _ in range(12):
        engine.step()
    assert engine.tokens[other] == alone([40, 41, 42], max_tokens=8)
    assert engine.tokens[behind] == alone([43, 44], max_tokens=2)
    assert engine.tokens[waiting] == []
    assert engine.disk is not None
    assert len(engine.disk.readers.waiting) == 4, "several read at once"
    engine.disk_works = True
    engine.run()
    assert engine.cached[waiting] == 20
    assert engine.tokens[waiting] == alone(PROMPT, max_tokens=3)


def test_two_requests_that_begin_alike_are_read_for_once(tmp_path: Path) -> None:
    answer(driver(tmp_path), PROMPT)
    engine = driver(tmp_path)
    engine.disk_works = False
    both = [engine.add([*PROMPT, number], max_tokens=3) for number in (1, 2)]
    for _ in range(3):
        engine.step()
    engine.disk_works = True
    engine.run()
    assert [engine.cached[number] for number in both] == [20, 20]
    assert counts(engine)["hits"] == 5


def test_a_disk_that_hangs_is_waited_for_no_longer_than_computing_takes(tmp_path: Path) -> None:
    answer(driver(tmp_path), PROMPT)
    engine = driver(tmp_path, compute_s=0.0)
    engine.disk_works = False
    number = engine.add(PROMPT, max_tokens=3)
    while engine.scheduler.has_work:
        engine.step()
    assert engine.tokens[number] == alone(PROMPT, max_tokens=3)
    assert engine.cached[number] == 0
    engine.disk_works = True
    engine.run()
    assert counts(engine)["late"] == 5
    assert counts(engine)["hits"] == 0


def test_below_the_crossover_it_is_computed(tmp_path: Path) -> None:
    answer(driver(tmp_path), PROMPT)
    for least, cached in ((20, 20), (21, 0)):
        engine = driver(tmp_path, min_tokens=least)
        assert engine.cached[answer(engine, PROMPT)] == cached


def test_i6_an_aborted_request_leaves_nothing_behind(tmp_path: Path) -> None:
    answer(driver(tmp_path), PROMPT)
    engine = driver(tmp_path)
    engine.disk_works = False
    number = engine.add(PROMPT, max_tokens=3)
    engine.step()
    assert engine.scheduler.host.used == 5
    engine.scheduler.end(number, Finish.ABORT)
    engine.collect()
    assert engine.scheduler.check() == []
    engine.disk_works = True
    engine.run()
    assert engine.cached[answer(engine, PROMPT)] == 20, "what had been read is of use to the next"
    assert counts(engine)["hits"] == 5


def test_a_prompt_that_is_scored_is_computed(tmp_path: Path) -> None:
    answer(driver(tmp_path), PROMPT)
    engine = driver(tmp_path)
    number = engine.add(PROMPT, max_tokens=2, prompt_logprobs=0)
    engine.run()
    assert engine.cached[number] == 0


def test_a_full_disk_costs_hits_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(driver(tmp_path), PROMPT)
    monkeypatch.setattr("engines.native.disk_store.MIN_FREE_BYTES", 2**60)
    engine = driver(tmp_path, blocks=12)
    for first in range(6):
        answer(engine, [first, *PROMPT], max_tokens=4)
    assert engine.cached[answer(engine, PROMPT)] == 20, "reading goes on"
    found = counts(engine)
    assert found["errors"] == 1
    assert found["dropped"] > 20
    assert engine.disk is not None
    assert not engine.disk.tier.counts().writing


def test_a_slow_disk_never_takes_the_hosts_memory_from_preempted_requests(tmp_path: Path) -> None:
    engine = driver(tmp_path, blocks=11, rows=4, budget=12, host_blocks=40)
    engine.disk_works = False
    for _ in range(4):
        engine.add([1, 2], max_tokens=1)  # history says that outputs are short
    prompts = {}
    for _ in range(3):
        prompts |= {engine.add([10 + i, 2, 3, 4, 5], max_tokens=24): [10 + i, 2, 3, 4, 5] for i in range(4)}
    for _ in range(400):
        engine.step()
        owned = engine.scheduler.host.disk
        assert owned is not None
        assert sum(map(len, owned.tables())) <= 10, "a quarter of it"
    assert engine.scheduler.host.swaps > 0
    for number, prompt in prompts.items():
        assert engine.tokens[number] == alone(prompt, max_tokens=24)
    engine.disk_works = True
    engine.run()


def test_what_a_failed_step_copied_is_not_written(tmp_path: Path) -> None:
    engine = driver(tmp_path)
    engine.add(PROMPT, max_tokens=8)
    engine.step()
    assert engine.scheduler.host.restless
    step = engine.scheduler.plan(0.0)
    assert step is not None
    assert step.swap_out
    engine.scheduler.fail(step, "the copy went wrong")
    engine.collect()
    engine.run()
    assert list(tmp_path.rglob("*.kv")) == []
    assert counts(engine)["dropped"] == 5
    assert engine.scheduler.host.used == 0


def test_e7_healing_keeps_what_threads_are_at(tmp_path: Path) -> None:
    answer(driver(tmp_path), PROMPT)
    engine = driver(tmp_path)
    engine.disk_works = False
    number = engine.add(PROMPT, max_tokens=3)
    engine.step()
    engine.scheduler.host._pool.available -= 1
    assert engine.scheduler.heal()
    assert engine.scheduler.check() == []
    engine.disk_works = True
    engine.run()
    assert engine.tokens[number] == alone(PROMPT, max_tokens=3)


def test_after_healing_no_block_is_written_under_a_name_that_it_no_longer_has(tmp_path: Path) -> None:
    engine = driver(tmp_path)
    engine.disk_works = False
    number = engine.add(PROMPT, max_tokens=1)
    while number not in engine.endings:
        engine.step()
    engine.scheduler.pool.available -= 1
    assert engine.scheduler.heal()
    engine.disk_works = True
    engine.run()
    assert list(tmp_path.rglob("*.kv")) == []


def test_a_small_host_passes_a_long_prompt_on_in_parts(tmp_path: Path) -> None:
    prompt = [number % 50 for number in range(50)]
    answer(driver(tmp_path, host_blocks=4, budget=60), prompt)
    engine = driver(tmp_path, budget=60)
    assert engine.cached[answer(engine, prompt)] == 48
    small = driver(tmp_path, host_blocks=4, budget=60)
    assert small.cached[answer(small, prompt)] == 16, "as much as the host holds"
