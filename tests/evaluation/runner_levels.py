"""Levels of a server with a programmed law, computed instead of waited for: no clock, no network."""

import numpy as np

from evaluation.client.law import Law, replay
from evaluation.runner.figures import level_result
from evaluation.runner.steady import assess, columns_of, transient_end
from evaluation.schema import RequestRecord, Steady, Window

S = 1_000_000_000


def served(law: Law, rate: float, count: int, seed: int, prompt_tokens=10, output_tokens=20) -> list[RequestRecord]:
    """Records of `count` Poisson arrivals at `rate` per second."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count)).tolist()
    answers = replay(law, arrivals, prompt_tokens, output_tokens)
    return [
        RequestRecord(
            index=index,
            intended_ns=round(arrival * S),
            sent_ns=round(arrival * S),
            first_ns=round(answer.first_s * S),
            chunks=[(round(answer.first_s * S), 1), (round(answer.last_s * S), output_tokens - 1)],
            end_ns=round(answer.last_s * S),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )
        for index, (arrival, answer) in enumerate(zip(arrivals, answers, strict=True))
    ]


def level(law: Law, rate: float, *, objectives, requests=1000, warm_up_s=5.0, seed=1, index=0, rules=None):
    """As the live runner decides: the window grows until the level is steady or overloaded, or four times as long."""
    rules = rules or Steady(min_s=0)
    records = served(law, rate, round(requests * 5 + rate * warm_up_s), seed)
    columns = columns_of(records)
    warm = records[0].intended_ns + round(warm_up_s * S)
    last = records[-1].intended_ns
    for share in (0.25, 0.5, 0.75, 1.0):
        now = warm + round((last - warm) * share)
        known = columns_of(_seen(records, now))
        begin = transient_end(known, warm, now)
        verdict = assess(columns if share == 1.0 else known, begin, now, rules)
        enough = len(columns.within(begin, now).arrivals) >= requests
        if verdict.verdict == "overloaded" or (verdict.verdict == "steady" and enough):
            break
    window = Window(start_ns=begin, end_ns=now, seconds=(now - begin) / S, truncated_s=(begin - warm) / S)
    return level_result(records, window, verdict, index=index, rate=rate, objectives=objectives, seed=seed)


def _seen(records, now):
    """What is known at a time: who arrived, and who has ended."""
    for record in records:
        if record.intended_ns >= now:
            return
        if record.end_ns >= now:
            begun = record.first_ns if record.first_ns < now else None
            yield RequestRecord(index=record.index, intended_ns=record.intended_ns, first_ns=begun)
        else:
            yield record
