"""Random loads on the fake runner: every block accounted for, every request ends once, outputs as if undisturbed."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.native.request import Finish, SamplingParams
from tests.engines.driver import Driver
from tests.engines.fake_runner import VOCAB, expected

TRUNK = [7, 3, 9, 9, 1, 4, 4, 8, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6]

arrivals = st.fixed_dictionaries(
    {
        "shared": st.one_of(st.integers(0, len(TRUNK)), st.sampled_from([4, 8, 12, 16, 24])),  # often whole blocks
        "own": st.one_of(st.just([]), st.lists(st.integers(0, 3), max_size=6)),
        "max_tokens": st.integers(1, 30),
        "min_tokens": st.integers(0, 6),
        "stops": st.lists(st.integers(0, VOCAB - 1), max_size=4),
        "priority": st.integers(0, 2),
        "salt": st.sampled_from(["", "", "tenant"]),
    }
)
actions = st.lists(
    st.one_of(
        arrivals,
        st.just("step"),
        st.just("step"),
        st.tuples(st.sampled_from(["abort", "abort in flight"]), st.integers(0, 30)),
        st.just("again"),
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
    }
)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shapes, actions)
def test_random_schedules(shape: dict, plan: list) -> None:
    driver = Driver(
        blocks=shape["blocks"],
        rows=shape["rows"],
        budget=shape["rows"] + 4 + shape["extra"],
        cache=shape["cache"],
        depth=shape["depth"],
    )
    asked: dict[int, tuple[list[int], SamplingParams]] = {}
    last = None

    def arrive(arrival: dict) -> None:
        prompt = TRUNK[: arrival["shared"]] + arrival["own"] or [1]
        params = {name: arrival[name] for name in ("max_tokens", "min_tokens")} | {"stop_token_ids": arrival["stops"]}
        request_id = driver.add(prompt, salt=arrival["salt"], priority=arrival["priority"], **params)
        asked[request_id] = (prompt, SamplingParams(**params))

    for action in plan:
        if action == "step":
            driver.step()
        elif action == "again":
            if last is not None:
                arrive(last)
        elif isinstance(action, dict):
            last = action
            arrive(action)
        elif asked:
            victim = sorted(asked)[action[1] % len(asked)]
            if action[0] == "abort":
                driver.scheduler.end(victim, Finish.ABORT)
                driver.collect()
            else:
                driver.step(lambda victim=victim: driver.scheduler.end(victim, Finish.ABORT))
    driver.run()

    assert set(driver.endings) == set(asked)
    for request_id, (prompt, params) in asked.items():
        finish, got = driver.endings[request_id], driver.tokens[request_id]
        if finish is Finish.ERROR:
            assert len(prompt) >= driver.scheduler.max_len
            continue
        want = expected(prompt, params, driver.scheduler.max_len)
        if finish is Finish.ABORT:
            assert got == want[: len(got)]
            continue
        assert got == want
        stopped = want[-1] in params.stop_token_ids and len(want) >= params.min_tokens
        assert finish is (Finish.STOP if stopped else Finish.LENGTH)
