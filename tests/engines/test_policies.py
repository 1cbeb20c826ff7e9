"""Policies: the order within one tenant's line, and how one is named."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from engines.api import LaunchSpec, Local, RunDir
from engines.native import core, policies
from engines.native.config import ConfigError
from engines.native.policies import FirstCome, LengthWindow, PolicySettings, make_policy
from engines.native.request import Request
from tests.engines.driver import Driver


def order(policy: policies.Policy, arrivals: list[tuple[float, int]]) -> list[int]:
    """Places in `arrivals`, (s, prompt tokens), in the order in which one row serves them."""
    driver = Driver(blocks=60, rows=1, budget=40, policy=policy)
    ids = []
    for at, length in arrivals:
        driver.now = at
        ids.append(driver.add([1] * length, max_tokens=1))
    driver.run()
    return [ids.index(number) for number in driver.endings]


def test_first_come_is_the_order_of_arrival() -> None:
    assert order(FirstCome(), [(0, 30), (0, 2), (1, 9)]) == [0, 1, 2]


def test_short_prompts_of_one_window_go_first_and_equal_buckets_by_arrival() -> None:
    policy = LengthWindow(PolicySettings(window_s=1.0))
    assert order(policy, [(0.1, 30), (0.2, 2), (0.3, 25), (0.9, 3)]) == [1, 3, 0, 2]


def test_a_window_is_never_overtaken_by_a_later_one() -> None:
    policy = LengthWindow(PolicySettings(window_s=1.0))
    arrivals = [(0.5, 30), *((1.0 + number, 1) for number in range(10)), (0.6, 31)]
    assert order(policy, arrivals)[:2] == [0, 11]


def test_a_name_that_nothing_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="'newest'; it can be fcfs, length_window"):
        make_policy("newest", PolicySettings())


def test_a_plugin_adds_a_policy_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class LastCome:
        def __init__(self, settings: PolicySettings) -> None:
            self.settings = settings

        def key(self, request: Request) -> tuple[float, ...]:
            return (-request.arrived,)

    point = types.SimpleNamespace(name="lifo", value="some.plugin:LastCome", load=lambda: LastCome)
    monkeypatch.setattr(policies, "entry_points", lambda group: [point] if group == "tursiops.engine_policies" else [])
    assert order(make_policy("lifo", PolicySettings()), [(0, 2), (1, 2), (2, 2)]) == [2, 1, 0]
    monkeypatch.setattr(policies, "entry_points", lambda group: [point, point])
    with pytest.raises(ConfigError, match=r"several packages: some\.plugin:LastCome, some"):
        make_policy("lifo", PolicySettings())


def test_a_core_refuses_a_name_that_nothing_has_before_it_loads_weights(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    spec = LaunchSpec(instance_id="i", served_name="m", files=[], format="gguf", options={"policy": "newest"})
    run_dir.write_spec(spec, Local(paths={}, host="127.0.0.1", port=0, token="t", epoch=1))
    with pytest.raises(ConfigError, match="policy is 'newest'"):
        core.build(tmp_path, lambda share, text: None)
