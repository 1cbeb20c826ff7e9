"""Strict mode: the same ids and the same bits alone, in a batch, with the prefix cache, after a preemption."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engines.native import strict
from engines.native.config import ConfigError, EngineConfig
from engines.native.draft import Step
from engines.native.offline import Generated, Offline
from engines.native.ops.base import Batch, Ops
from engines.native.ops.torch_ops import TorchOps
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, build_runner
from evaluation.benchmarks.strict_gpu import bits, preempt
from tests.engines.weights import golden, smollm2

BLOCK, HEADS, KV_HEADS, SIZE = 8, 6, 2, 16


def batch_of(rows: list[tuple[int, int]], tables: list[list[int]]) -> Batch:
    """rows: (tokens before, queries now)."""
    ends = torch.tensor([before + queries for before, queries in rows])
    counts = torch.tensor([queries for _, queries in rows])
    cu_query = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).int()
    positions = torch.cat([torch.arange(before, before + queries) for before, queries in rows])
    width = max(map(len, tables))
    return Batch(
        token_ids=torch.zeros(int(counts.sum()), dtype=torch.int64),
        positions=positions,
        slots=torch.zeros_like(positions),
        cu_query=cu_query,
        seq_lens=ends.int(),
        block_tables=torch.tensor([table + [0] * (width - len(table)) for table in tables], dtype=torch.int32),
        logits_index=torch.empty(0, dtype=torch.int64),
        max_query=int(counts.max()),
        max_seq=int(ends.max()),
    )


def pools(blocks: int, block_size: int = BLOCK) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return tuple(torch.randn(KV_HEADS, blocks, block_size, SIZE).transpose(0, 1) for _ in range(2))


def defined(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, before: int, window: int = 0, softcap: float = 0.0
) -> torch.Tensor:
    """q [queries, hq, d] behind `before` tokens; keys and values [hk, keys, d]; by definition, in float64."""
    keys, values = (each.repeat_interleave(HEADS // KV_HEADS, 0).double() for each in (keys, values))
    key, at = torch.arange(keys.shape[1])[None], torch.arange(before, before + len(q))[:, None]
    unseen = (key > at) | (key <= at - window) if window else key > at
    scores = q.double().transpose(0, 1) @ keys.transpose(1, 2) * 0.3
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    return (scores.masked_fill(unseen, -torch.inf).softmax(-1) @ values).transpose(0, 1)


@pytest.mark.parametrize("window", [0, 5, 24])
def test_attention_is_as_defined(window):
    keys, values = pools(24)
    rows, tables = [(0, 19), (30, 1), (13, 9)], [[3, 1, 2], [9, 8, 7, 6], [12, 14, 13]]
    q = torch.randn(29, HEADS, SIZE)
    found = TorchOps().attention(q, keys, values, batch_of(rows, tables), 0.3, window)
    for own, (before, queries), table in zip(q.split([19, 1, 9]), rows, tables, strict=True):
        lie = [pool[table].transpose(0, 1).flatten(1, 2)[:, : before + queries] for pool in (keys, values)]
        torch.testing.assert_close(found[: len(own)], defined(own, *lie, before, window).float())
        found = found[len(own) :]


@pytest.mark.parametrize("window", [0, 20])
def test_attention_has_the_same_bits_in_every_chunk_and_company(window):
    in_any_chunks(TorchOps(), window, [1] * 40, [7, 1, 20, 12], [16, 24], [39, 1])


def in_any_chunks(ops: Ops, window: int, *chunks: list[int]) -> None:
    """40 queries have the same bits in one pass and in `chunks`, each beside another row."""
    keys, values = pools(24)
    table, other = [5, 2, 9, 4, 7], [11, 12, 13]
    q = torch.randn(40, HEADS, SIZE)
    whole = ops.attention(q, keys, values, batch_of([(0, 40)], [table]), 0.3, window)
    lie = [pool[table].transpose(0, 1).flatten(1, 2) for pool in (keys, values)]
    torch.testing.assert_close(whole, defined(q, *lie, 0, window).float())
    for cuts in chunks:
        begin, parts = 0, []
        for much in cuts:
            beside = torch.randn(3, HEADS, SIZE)
            batch = batch_of([(17, 3), (begin, much)], [other, table])
            mixed = torch.cat([beside, q[begin : begin + much]])
            parts.append(ops.attention(mixed, keys, values, batch, 0.3, window)[3:])
            begin += much
        assert torch.equal(torch.cat(parts), whole)


def settings(**changes) -> EngineConfig:
    path = smollm2()
    fields = {"format": "gguf", "paths": {path.name: str(path)}, "device": "cpu", "dtype": "float32"}
    fields |= {"max_model_len": 256, "max_num_seqs": 16, "kv_cache_bytes": 128 * 2**20, "strict": True}
    return EngineConfig(**(fields | changes))


@pytest.fixture(scope="module", params=["float32", "int8"])
def runner(request: pytest.FixtureRequest) -> ModelRunner:
    return build_runner(settings(dtype=request.param))


def prompts(number: int) -> list[list[int]]:
    """Real text, of many lengths; every third begins like the one before it."""
    ids = [line["prompt_token_ids"] for line in golden()]
    text = [token for one in ids for token in one]
    made: list[list[int]] = []
    for each in range(number):
        start, length = each * 31 % (len(text) - 120), 5 + each * 17 % 90
        piece = text[start : start + length]
        made.append([*made[-1][:48], *piece[:20]] if each % 3 == 2 else piece)
    return made


def params(number: int, most: int) -> SamplingParams:
    """Greedy, and random with filters of different width, so that no row's filter may follow another's."""
    if number % 2:
        return SamplingParams(
            temperature=0.9, top_k=number % 5 * 20, top_p=0.9, seed=number, max_tokens=most, logprobs=0
        )
    return SamplingParams(temperature=0, max_tokens=most, logprobs=0)


@pytest.mark.slow
def test_alone_in_a_batch_cached_and_preempted_are_the_same_bits(runner):
    check(runner, 6, most=4)


@pytest.mark.nightly
@pytest.mark.timeout(0)  # minutes on a quiet machine
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_two_hundred_prompts_sixty_four_at_a_time(dtype):
    check(
        build_runner(settings(dtype=dtype, max_num_seqs=64, kv_cache_bytes=2**29, max_batched_tokens=2048)), 200, most=6
    )


def check(runner: ModelRunner, number: int, most: int) -> None:
    plain = settings(prefix_cache=False)  # sizes, dtype and memory are the runner's
    asked, drawn = prompts(number), [params(each, most) for each in range(number)]
    alone = bits(one_by_one(Offline(plain, runner), asked, drawn))
    engine = Offline(plain, runner)
    beside = rows_beside(engine)
    assert bits(engine.generate(asked, drawn)) == alone
    assert max(beside) == min(number, runner.sizes.max_num_seqs)
    cached = settings()
    assert bits(Offline(cached, runner).generate(asked, drawn)) == alone
    assert bits(one_by_one(Offline(cached, runner), asked, drawn)) == alone
    engine = Offline(plain, runner)
    preempt(engine)
    assert bits(engine.generate(asked, drawn)) == alone
    assert engine.scheduler.preemptions > 1


@pytest.mark.slow
def test_an_int8_engine_as_it_comes_says_the_same_with_guesses_and_in_company():
    plain = settings(dtype="int8", strict=False, speculation="off")
    guessing = replace(plain, speculation="auto")
    runner = build_runner(plain)
    asked = [line["prompt_token_ids"] for line in golden()][:3]
    greedy = [SamplingParams(temperature=0, max_tokens=24)] * 3
    alone = [one.token_ids for one in one_by_one(Offline(plain, runner), asked, greedy)]
    assert [one.token_ids for one in Offline(plain, runner).generate(asked, greedy)] == alone
    engine = Offline(guessing, runner)
    assert engine.scheduler.speculator is not None
    counts = engine.scheduler.speculator.counts
    for _ in range(2):  # what was said first is guessed then
        assert [one.token_ids for one in engine.generate(asked, greedy)] == alone
        assert [one.token_ids for one in one_by_one(engine, asked, greedy)] == alone
    assert counts.accepted > 20


def one_by_one(engine: Offline, asked: list[list[int]], drawn: list[SamplingParams]) -> list[Generated]:
    return [one for pair in zip(asked, drawn, strict=True) for one in engine.generate([pair[0]], [pair[1]])]


def rows_beside(engine: Offline) -> list[int]:
    """Gets the number of requests that run, at each step that is planned."""
    scheduler, seen = engine.scheduler, list[int]()
    plan = scheduler.plan

    def counting(now: float) -> Step | None:
        step = plan(now)
        seen.append(len(scheduler.running))
        return step

    scheduler.plan = counting  # type: ignore[method-assign]
    return seen


@pytest.mark.slow
def test_an_engine_that_cannot_keep_the_promise_does_not_start():
    """A tied head as [in, out] has other sums for one row than for several: strict mode does not use it."""
    ordinary = build_runner(settings(strict=False))
    with pytest.raises(ConfigError, match=r"options\.strict is true, but on this machine a prompt alone"):
        strict.verify(ordinary)


def test_offloaded_layers_refuse_it_by_name():
    with pytest.raises(ConfigError, match=r"strict is true, but offloaded layers"):
        replace(settings(), offload_layers=1)
