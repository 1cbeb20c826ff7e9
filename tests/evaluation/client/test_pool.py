"""Against servers that do what they are told: each figure is the law's, each failure has its name."""

import asyncio
import itertools
import time

import psutil
import pytest

from evaluation.client.law import Law, replay
from evaluation.client.pool import EndpointError, SenderDied, Stop, send
from evaluation.client.servers import running
from evaluation.schema import Endpoint, RequestRecord
from evaluation.workload.item import Item, Planned, Turn, plan


def item(number: int = 0, words: int = 8, tokens: int = 4) -> Item:
    text = " ".join(f"w{number}.{place}" for place in range(words))
    message = {"role": "user", "content": text}
    return Item(turns=[Turn(messages=[message], prompt=text, max_tokens=tokens, prompt_tokens=words)])


def every_ms(interval: float, count: int, **asked: int) -> list[Planned]:
    offsets = [int(number * interval * 1e6) for number in range(count)]
    return list(plan([item(number, **asked) for number in range(count)], offsets))


async def sent(law: Law, planned: list[Planned], **options: object) -> list[RequestRecord]:
    records: list[RequestRecord] = []
    endpoint = options.pop("endpoint", {})
    async with running(law) as url:
        said = Endpoint(url=url, model="law", **endpoint)
        outcome = await send(planned, said, on_record=records.append, **options)
    assert outcome.records == len(records)
    return sorted(records, key=lambda record: (record.index, record.turn))


@pytest.mark.parametrize("api", ["chat", "completions"])
async def test_a_record_says_what_happened(api):
    law = Law(ttft_ms=30, itl_ms=10, template_tokens=5)
    (record,) = await sent(law, every_ms(0, 1), endpoint={"api": api})
    assert (record.status, record.error, record.finish_reason) == ("ok", "", "length")
    assert record.prompt_tokens == 8 + (5 if api == "chat" else 0)
    assert (record.output_tokens, record.planned_output_tokens, record.planned_prompt_tokens) == (4, 4, 8)
    assert [tokens for _, tokens in record.chunks] == [1, 1, 1, 1]
    assert record.first_ns == record.chunks[0][0]
    assert record.intended_ns <= record.sent_ns < record.headers_ns <= record.first_ns < record.end_ns
    assert record.first_ns - record.sent_ns >= 30e6  # never earlier than the law
    assert record.chunks[-1][0] - record.sent_ns >= 60e6


async def test_the_schedule_is_kept_and_shared_by_processes():
    records = await sent(Law(ttft_ms=1, itl_ms=0), every_ms(5, 60), processes=3)
    assert [record.index for record in records] == list(range(60))
    assert {record.process for record in records} == {0, 1, 2}
    zero = records[0].intended_ns
    assert [record.intended_ns - zero for record in records] == [number * 5_000_000 for number in range(60)]
    assert all(record.sent_ns >= record.intended_ns for record in records)


async def test_a_queue_shows_from_the_intended_start():
    """Capacity 20/s, 40/s come: the last of 24 waits about half of the time that they take (case 23, case 19)."""
    law = Law(ttft_ms=20, itl_ms=10, slots=1)
    planned = every_ms(25, 24)
    expected = replay(law, [entry.offset_ns / 1e9 for entry in planned], 8, 4)
    records = await sent(law, planned)
    for record, answer in zip(records, expected, strict=True):
        start = record.intended_ns - planned[record.index].offset_ns
        assert record.chunks[-1][0] - start >= answer.last_s * 1e9 - 1e6
    waited = [record.first_ns - record.intended_ns for record in records]
    assert waited[-1] > 500e6 > 100e6 > waited[0]


async def test_a_stall_is_seen_by_all_who_should_have_been_served():
    """Coordinated omission: a closed loop sends nothing while it waits, so it has one slow request, not all."""
    law = Law(ttft_ms=2, itl_ms=0, stall_at_s=0.2, stall_s=0.6)
    slow_open = [r for r in await sent(law, every_ms(20, 45)) if r.first_ns - r.intended_ns > 200e6]
    closed = [Planned(index=number, item=item(number)) for number in range(120)]
    slow_closed = [r for r in await sent(law, closed, concurrency=1) if r.first_ns - r.sent_ns > 200e6]
    assert len(slow_closed) == 1
    assert 17 <= len(slow_open) <= 35  # those due in the first 0.4 s of the stall: 20


async def test_closed_loop_keeps_so_many_at_once():
    planned = [Planned(index=number, item=item(number)) for number in range(30)]
    records = await sent(Law(ttft_ms=20, itl_ms=0), planned, concurrency=3, processes=2)
    edges = sorted([(r.sent_ns, 1) for r in records] + [(r.end_ns, -1) for r in records])
    depth = list(itertools.accumulate(step for _, step in edges))
    assert max(depth) == 3
    assert len(records) == 30


async def test_a_session_waits_for_the_answer_and_repeats_it():
    turns = [
        Turn(messages=[{"role": "user", "content": "one two"}], max_tokens=3),
        Turn(messages=[{"role": "user", "content": "three"}], max_tokens=2, think_s=0.05),
    ]
    planned = [Planned(index=0, item=Item(turns=turns, session=9), offset_ns=0)]
    first, second = await sent(Law(ttft_ms=5, itl_ms=1), planned)
    assert (first.turn, second.turn, first.session, second.session) == (0, 1, 9, 9)
    assert second.intended_ns - first.end_ns == 50_000_000
    assert (first.prompt_tokens, second.prompt_tokens) == (2, 2 + 3 + 1)


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        ("reset", "error", "connection_reset"),
        ("cut", "cut", "stream_cut"),
        ("invalid_sse", "error", "invalid_sse"),
        ("http_500", "error", "http_500: out of memory, as told"),
        ("stream_error", "error", "stream_error: KV cache lost, as told"),
        ("no_usage", "ok", "no_usage"),
        ("early_stop", "ok", ""),
        ("hang", "timeout", "timeout"),
    ],
)
async def test_each_failure_has_its_name_and_harms_no_other(failure, status, code):
    law = Law(ttft_ms=2, itl_ms=1, failure=failure, failure_every=3)
    records = await sent(law, every_ms(30, 6), endpoint={"timeout_s": 0.5})
    assert [record.status for record in records] == ["ok", "ok", status] * 2
    failed = records[2]
    assert failed.error.startswith(code)
    assert failed.end_ns is not None
    if failure in ("reset", "cut", "invalid_sse", "stream_error"):
        assert len(failed.chunks) == 2  # what came before is kept
    if failure == "early_stop":
        assert (failed.output_tokens, failed.planned_output_tokens, failed.finish_reason) == (1, 4, "stop")
    if failure == "no_usage":
        assert failed.output_tokens is None
        assert len(failed.chunks) == 4


async def test_an_endpoint_that_is_down_is_a_status_and_none_that_is_none_an_error():
    records: list[RequestRecord] = []
    await send(every_ms(0, 2), Endpoint(url="http://127.0.0.1:9", model="x"), on_record=records.append)
    assert [record.error.partition(":")[0] for record in records] == ["connection_refused"] * 2
    for url, code in (("http://", "invalid_url"), ("http://h:99999", "invalid_url"), ("http://h.invalid", "unknown_h")):
        with pytest.raises(EndpointError, match=code):
            await send([], Endpoint(url=url, model="x"), on_record=records.append)


@pytest.mark.parametrize("cut", [True, False])
async def test_a_stopped_run_keeps_what_it_measured(cut):
    """An endless plan, stopped at the fifth record: in flight is cut with its chunks, or read to its end."""
    stop, records = Stop(), []

    def take(record: RequestRecord) -> None:
        records.append(record)
        if len(records) == 5:
            (stop.cut if cut else stop.drain)()

    law = Law(ttft_ms=5, itl_ms=20)
    planned = plan((item(number, tokens=20) for number in itertools.count()), itertools.count(0, 10_000_000))
    async with running(law) as url:
        begun = time.monotonic()
        await asyncio.wait_for(send(planned, Endpoint(url=url, model="law"), on_record=take, stop=stop), 20)
        assert time.monotonic() - begun < 15
    assert {record.status for record in records} == ({"ok", "cancelled"} if cut else {"ok"})
    if cut:
        assert any(0 < len(record.chunks) < 20 for record in records if record.status == "cancelled")
    else:
        assert all(len(record.chunks) == 20 for record in records)


async def test_a_tokens_share_of_a_chunk_is_known():
    """Chunks of two tokens, an odd number of them: the usage is shared out."""
    (record,) = await sent(Law(ttft_ms=1, itl_ms=1, chunk_tokens=2), every_ms(0, 1, tokens=7))
    assert [tokens for _, tokens in record.chunks] == [2, 2, 2, 1]


def senders() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [child for child in children if "evaluation.client.worker" in child.cmdline()]


async def test_a_killed_sender_ends_the_run_by_name_and_leaves_no_process():
    records: list[RequestRecord] = []

    def take(record: RequestRecord) -> None:
        records.append(record)
        if len(records) == 3:
            senders()[0].kill()

    planned = plan((item(number) for number in itertools.count()), itertools.count(0, 20_000_000))
    async with running(Law(ttft_ms=1, itl_ms=0)) as url:
        with pytest.raises(SenderDied, match="ended before its work"):
            await send(planned, Endpoint(url=url, model="law"), on_record=take, processes=2)
    assert len(records) >= 3
    assert not senders()


async def test_a_cancelled_send_leaves_no_process():
    planned = plan((item(number) for number in itertools.count()), itertools.count(0, 20_000_000))
    seen = asyncio.Event()
    async with running(Law(ttft_ms=1, itl_ms=0)) as url:
        endpoint = Endpoint(url=url, model="law")
        task = asyncio.create_task(send(planned, endpoint, on_record=lambda _: seen.set()))
        await asyncio.wait_for(seen.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not senders()
