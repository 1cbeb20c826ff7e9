"""Random loads on the fake runner: every block of every pool accounted for, every request ends once, and its tokens are
those that it would have had alone. `Driver.step` checks pools and rows after each step, `FakeRunner` what is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.native.grammar.spec import Grammar
from engines.native.policies import FirstCome, LengthWindow, PolicySettings
from engines.native.request import Finish, SamplingParams, TimeoutLayer, Timeouts
from tests.engines.driver import Driver
from tests.engines.fake_runner import VOCAB, expected
from tests.engines.guessing import speculator

TRUNK = [7, 3, 9, 9, 1, 4, 4, 8, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6]
POLICIES = [FirstCome(), LengthWindow(PolicySettings(window_s=2.0))]

limit = st.sampled_from([None, None, None, 1, 3, 8])
arrivals = st.fixed_dictionaries(
    {
        "shared": st.one_of(st.integers(0, len(TRUNK)), st.sampled_from([4, 8, 12, 16, 24])),  # often whole blocks
        "own": st.one_of(st.just([]), st.lists(st.integers(0, 3), max_size=6)),
        "max_tokens": st.integers(1, 30),
        "min_tokens": st.integers(0, 6),
        "stops": st.lists(st.integers(0, VOCAB - 1), max_size=4),
        "priority": st.integers(0, 2),
        "salt": st.sampled_from(["", "", "tenant"]),
        "tenant": st.sampled_from(["", "a", "b"]),
        "timeouts": st.builds(Timeouts, limit, limit, limit),
        "grammar": st.sampled_from([None, None, Grammar("anything")]),
        "forks": st.booleans(),
    }
)
actions = st.lists(
    st.one_of(
        arrivals,
        st.just("step"),
        st.just("step"),
        st.just("second"),
        st.tuples(st.sampled_from(["abort", "abort in flight"]), st.integers(0, 30)),
        st.just("again"),
        st.tuples(st.just("fork"), st.integers(0, 30)),
    ),
    min_size=1,
    max_size=40,
)
shapes = st.fixed_dictionaries(
    {
        "blocks": st.integers(4, 40),
        "rows": st.integers(1, 6),
        "extra": st.integers(0, 20),
        "cache": st.booleans(),
        "depth": st.integers(1, 3),
        "host_blocks": st.sampled_from([0, 3, 10, 60]),
        "host_cache": st.booleans(),
        "swap_min": st.sampled_from([1, 6]),
        "policy": st.sampled_from(POLICIES),
        "disk": st.sampled_from([False, False, True]),
        "target": st.sampled_from([0, 0, 0.2, 5]),
        "speculation": st.sampled_from([None, speculator(0.5), speculator(0.9)]),
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the disk tier, for a few blocks. Schedules follow each other on it as engines do that are started again."""
    return tmp_path_factory.mktemp("disk")


class Schedule:
    """One random load, and what was asked in it."""

    def __init__(self, shape: dict, folder: Path) -> None:
        sizes = {name: shape[name] for name in shape if name not in ("extra", "disk")}
        if shape["disk"]:
            sizes |= {"disk": folder, "limit": 100 * 132}
        self.driver = Driver(**sizes, budget=shape["rows"] + 4 + shape["extra"])
        self.asked: dict[int, tuple[list[int], SamplingParams]] = {}
        self._last: dict | None = None

    def act(self, action: object) -> None:
        driver = self.driver
        if action == "step":
            driver.step()
        elif action == "second":
            driver.now += 1
            driver.disk_works = not driver.disk_works
        elif action == "again":
            if self._last is not None:
                self._arrive(self._last)
        elif isinstance(action, dict):
            self._last = action
            self._arrive(action)
        elif self.asked:
            kind, number = action  # type: ignore[misc]
            victim = sorted(self.asked)[number % len(self.asked)]
            if kind == "fork":
                self._fork(victim)
            elif kind == "abort":
                driver.scheduler.end(victim, Finish.ABORT)
                driver.collect()
            else:
                driver.step(lambda: driver.scheduler.end(victim, Finish.ABORT))

    def _arrive(self, arrival: dict) -> None:
        prompt = TRUNK[: arrival["shared"]] + arrival["own"] or [1]
        params = {name: arrival[name] for name in ("max_tokens", "min_tokens")} | {"stop_token_ids": arrival["stops"]}
        params["forks"] = arrival["forks"]
        kept = {name: arrival[name] for name in ("salt", "priority", "tenant", "timeouts", "grammar")}
        self.asked[self.driver.add(prompt, **kept, **params)] = (prompt, SamplingParams(**params))

    def _fork(self, parent: int) -> None:
        """Two requests go on from where it is, as beams do."""
        prompt, _ = self.asked[parent]
        for own in range(2):
            text = [*prompt, *self.driver.tokens[parent], own]
            child = SamplingParams(max_tokens=1, forks=True)
            self.asked[self.driver.add(text, max_tokens=1, forks=True)] = (text, child)

    def judge(self) -> None:
        driver = self.driver
        assert set(driver.endings) == set(self.asked)
        for request_id, (prompt, params) in self.asked.items():
            finish, got = driver.endings[request_id], driver.tokens[request_id]
            if finish is Finish.ERROR:
                assert len(prompt) >= driver.scheduler.max_len
                continue
            want = expected(prompt, params, driver.scheduler.max_len)
            if finish in (Finish.ABORT, Finish.TIMEOUT):
                assert got == want[: len(got)]
                code = driver.codes[request_id]
                assert code in list(TimeoutLayer) if finish is Finish.TIMEOUT else code == ""
                assert not got or code in ("", TimeoutLayer.TOTAL), "the other layers end with the first token"
                continue
            assert got == want
            stopped = want[-1] in params.stop_token_ids and len(want) >= params.min_tokens
            assert finish is (Finish.STOP if stopped else Finish.LENGTH)


def run(shape: dict, plan: list, folder: Path) -> None:
    schedule = Schedule(shape, folder)
    for action in plan:
        schedule.act(action)
    schedule.driver.disk_works = True
    schedule.driver.run()
    schedule.judge()


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shape=shapes, plan=actions)
def test_random_schedules(folder: Path, shape: dict, plan: list) -> None:
    run(shape, plan, folder)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@settings(max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shape=shapes, plan=actions)
def test_ten_thousand_random_schedules(folder: Path, shape: dict, plan: list) -> None:
    run(shape, plan, folder)
