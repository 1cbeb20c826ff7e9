"""Usage records where neither Redis nor the disk takes any: they wait, and none is lost, torn or doubled."""

import asyncio
import errno
import os

import msgspec
import pytest
from tursiops.gateway import metrics, spill, usage
from tursiops.gateway.app import new_redis
from tursiops.gateway.ledger import Ledger
from tursiops.gateway.spill import Spill
from tursiops.gateway.usage import UsageSink

from tests.gateway_bench import TEAM, until

RECORDS = [f'{{"request_id":"{number}"}}'.encode() for number in range(5)]


class Full:
    """A file on a disk with room for `room` more bytes."""

    def __init__(self, file, disk):
        self._file, self._disk = file, disk

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, data):
        if not self._disk["room"]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._file.write(data[: self._disk["room"]])
        self._disk["room"] -= written
        return written


@pytest.fixture
def disk(monkeypatch):
    found = {"room": 1 << 20}

    def begin(*args, **options):
        return Full(open(*args, **options), found)

    monkeypatch.setattr(spill, "open", begin, raising=False)
    return found


def lines(folder):
    return [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("room", [0, 1, 25])
def test_a_batch_is_written_whole_or_not_at_all(tmp_path, disk, room):
    made = Spill(tmp_path, 1 << 20)
    assert made.append(RECORDS[:1]) == 1
    disk["room"] = room
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            made.append(RECORDS[1:4])
    disk["room"] = 1 << 20
    assert made.append(RECORDS[1:]) == 4
    made.close()
    assert lines(tmp_path) == RECORDS


def test_no_file_can_be_begun(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    made = Spill(tmp_path, 1 << 20)
    with monkeypatch.context() as patch:
        patch.setattr(spill, "private", full)
        with pytest.raises(OSError, match="No space left"):
            made.append(RECORDS)
    assert made.append(RECORDS) == 5
    made.close()
    assert lines(tmp_path) == RECORDS


async def test_records_wait_in_memory_and_in_the_ledger_while_nothing_takes_them(tmp_path, config, disk, monkeypatch):
    monkeypatch.setattr(usage, "_AGAIN_S", 0.05)
    away = msgspec.structs.replace(config, redis_url=f"unix://{tmp_path}/no.sock")
    ledger = Ledger(config.run_dir / "usage-open")
    sink = UsageSink(away, new_redis(away.redis_url), ledger)
    running = asyncio.create_task(sink.run())
    dropped, folder = metrics.usage_dropped._value.get(), config.run_dir / "usage-spill"
    disk["room"] = 0
    for number in range(3):
        entry = usage.records.UsageEntry(
            request_id=str(number), team=TEAM, served_name="m", path="/v1/completions", status=200, started_at=1.0
        )
        sink.put(entry, ledger.open(entry))
        await asyncio.sleep(0.06)
    assert lines(folder) == []
    assert not running.done()
    disk["room"] = 1 << 20
    await until(lambda: len(lines(folder)) == 3)
    assert [msgspec.json.decode(line)["request_id"] for line in lines(folder)] == ["0", "1", "2"]
    assert metrics.usage_dropped._value.get() == dropped
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await sink.close()
    assert not list((config.run_dir / "usage-open").glob("*.open")), "all slots are free"


async def test_what_still_waits_at_the_end_is_left_to_the_next_gateway(tmp_path, config, disk):
    away = msgspec.structs.replace(config, redis_url=f"unix://{tmp_path}/no.sock")
    ledger = Ledger(config.run_dir / "usage-open")
    sink = UsageSink(away, new_redis(away.redis_url), ledger)
    disk["room"] = 0
    entry = usage.records.UsageEntry(
        request_id="a", team=TEAM, served_name="m", path="/v1/completions", status=200, started_at=1.0
    )
    sink.put(entry, ledger.open(entry))
    await sink.close()
    left = [each for _, entries in Ledger(config.run_dir / "usage-open").left_behind() for each in entries]
    assert left == [entry]
