"""Blocks as files: what is read is what was written, or nothing."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engines.native import disk_store
from engines.native.disk_store import BlockStore

BLOCK = 4096
OURS, OTHERS = b"a" * 32, b"b" * 32


def store(folder: Path, limit: int = 2**30, identity: bytes = OURS) -> BlockStore:
    return BlockStore(folder, identity, BLOCK, limit)


def content(number: int) -> memoryview:
    return memoryview(bytearray((number % 256).to_bytes(1, "big") * BLOCK))


def read(of: BlockStore, number: int) -> bytes | None:
    into = memoryview(bytearray(BLOCK))
    return bytes(into) if of.read(number, into) else None


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.kv"))


def test_a_block_comes_back_in_this_process_and_the_next(tmp_path: Path) -> None:
    first = store(tmp_path)
    assert first.write(7, 0, content(7))
    assert read(first, 7) == bytes(content(7))
    again = store(tmp_path)
    assert again.place(7) == 0
    assert read(again, 7) == bytes(content(7))
    assert read(again, 8) is None
    assert (again.counts.read_bytes, again.counts.invalid) == (BLOCK, 0)
    assert files(tmp_path)[0].stat().st_mode & 0o777 == 0o600


def test_another_models_blocks_are_not_seen(tmp_path: Path) -> None:
    store(tmp_path).write(7, 0, content(7))
    other = store(tmp_path, identity=OTHERS)
    assert other.place(7) is None
    assert read(other, 7) is None


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "first byte": lambda path: flip(path, 0),
    "identity": lambda path: flip(path, 20),
    "digest": lambda path: flip(path, 60),
    "checksum": lambda path: flip(path, 91),
    "content": lambda path: flip(path, 2000),
    "last byte": lambda path: flip(path, -1),
    "torn": lambda path: os.truncate(path, 3000),
    "torn in the header": lambda path: os.truncate(path, 30),
    "empty": lambda path: os.truncate(path, 0),
    "grown": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "zeros": lambda path: path.write_bytes(bytes(len(path.read_bytes()))),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_is_not_what_its_name_says_is_a_miss_and_goes(tmp_path: Path, damage: str) -> None:
    store(tmp_path).write(7, 0, content(7))
    (path,) = files(tmp_path)
    DAMAGE[damage](path)
    again = store(tmp_path)
    assert again.place(7) == 0
    assert read(again, 7) is None
    assert again.counts.invalid == 1
    assert again.place(7) is None
    assert files(tmp_path) == []
    assert again.counts.bytes_used == 0
    assert again.write(7, 0, content(7)), "and it can be written again"
    assert read(again, 7) == bytes(content(7))


def test_a_file_under_anothers_name_is_a_miss(tmp_path: Path) -> None:
    first = store(tmp_path)
    first.write(7, 0, content(7))
    first.write(8, 0, content(8))
    paths = files(tmp_path)
    os.replace(*paths)
    again = store(tmp_path)
    assert [read(again, number) for number in (7, 8)] == [None, None]
    assert again.counts.invalid == 1


def test_the_least_recently_used_goes_and_of_one_sequence_the_tail(tmp_path: Path) -> None:
    one = store(tmp_path, limit=4 * (BLOCK + disk_store._HEADER.size))
    for place, number in enumerate((10, 11, 12)):
        assert one.write(number, place, content(number), number - 1)
        time.sleep(0.003)
    one.write(20, 0, content(20))
    assert one.write(21, 1, content(21), 20)
    assert [one.place(number) for number in (10, 11, 12, 20, 21)] == [0, 1, None, 0, 1]
    time.sleep(0.01)
    one.touch([10, 11])
    assert one.stale
    one.refresh()
    assert not one.stale
    one.write(30, 0, content(30))
    one.write(31, 1, content(31), 30)
    assert [one.place(number) for number in (10, 11, 20, 21, 30, 31)] == [0, 1, None, None, 0, 1]
    assert one.counts.evicted == 3
    assert one.counts.bytes_used == sum(path.stat().st_size for path in files(tmp_path)) <= one.limit


def test_the_order_of_use_outlives_the_process(tmp_path: Path) -> None:
    limit = 3 * (BLOCK + disk_store._HEADER.size)
    first = store(tmp_path, limit)
    for number in (1, 2, 3):
        first.write(number, 0, content(number))
        time.sleep(0.01)
    first.touch([1])
    first.refresh()
    again = store(tmp_path, limit)
    again.write(4, 0, content(4))
    assert [again.place(number) for number in (1, 2, 3, 4)] == [0, None, 0, 0]


def test_a_smaller_limit_is_kept_to_and_other_files_are_left_alone(tmp_path: Path) -> None:
    first = store(tmp_path)
    for number in range(1, 9):
        first.write(number, 0, content(number))
    foreign = [files(tmp_path)[0].parent / "notes.txt", tmp_path / "a.kv", tmp_path / "tursiops-kv" / "readme"]
    for path in foreign:
        path.write_bytes(bytes(100_000))
    small = store(tmp_path, limit=2 * first.file_bytes)
    assert small.write(100, 0, content(100))
    assert small.counts.bytes_used <= small.limit
    assert [path for path in foreign if path.exists()] == foreign


@contextmanager
def largest_file(limit: int) -> Iterator[None]:
    """The system lets nobody write more than this into a file: what a full disk does, in the middle of a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_takes_no_more_stops_the_writes_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = store(tmp_path)
    assert one.write(1, 0, content(1))
    with largest_file(2000):
        assert not one.write(2, 0, content(2))
        assert not one.write(3, 0, content(3)), "not tried, for a while"
    assert (one.counts.errors, one.counts.resting, one.place(2)) == (1, True, None)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert list(tmp_path.rglob("*.part")) == []
    assert read(one, 1) == bytes(content(1)), "reading goes on"
    assert not one.write(2, 0, content(2))
    monkeypatch.setattr(one, "_rests_until", 0.0)
    assert one.write(2, 0, content(2))
    assert not one.counts.resting
    assert read(one, 2) == bytes(content(2))


def test_room_is_left_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = store(tmp_path)
    monkeypatch.setattr(disk_store, "MIN_FREE_BYTES", 2**60)
    assert not one.write(1, 0, content(1))
    assert one.counts.resting
    assert files(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        store(tmp_path / "file" / "under")


def test_two_engines_on_one_folder_do_not_hurt_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_store, "RESCAN_S", 0.0)
    limit = 4 * (BLOCK + disk_store._HEADER.size)
    one, two, other = store(tmp_path, limit), store(tmp_path, limit), store(tmp_path, limit, OTHERS)
    for each in (one, two):
        assert each.write(1, 0, content(1)), "both write it"
        assert read(each, 1) == bytes(content(1))
    assert len(files(tmp_path)) == 1
    for number in (2, 3):
        two.write(number, 0, content(number))
        other.write(number, 0, content(number + 100))
    assert read(one, 2) is None
    one.refresh()
    assert read(one, 2) == bytes(content(2)), "what another has written is found"
    assert one.counts.bytes_used == 5 * one.file_bytes, "and all models count"
    one.write(4, 0, content(4))
    assert one.counts.bytes_used <= limit
    found = [number for number in (1, 2, 3) if read(two, number) is not None]
    assert len(found) < 3, "something was deleted under it: a miss"
    assert (two.counts.errors, two.counts.invalid) == (0, 0)
    for each in (two, other):
        each.refresh()
        assert each.counts.bytes_used == sum(path.stat().st_size for path in files(tmp_path))


def test_a_folder_that_is_removed_is_made_again(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.write(1, 0, content(1))
    for path in [*tmp_path.rglob("*")][::-1]:
        path.rmdir() if path.is_dir() else path.unlink()
    assert read(one, 1) is None
    assert one.write(1, 0, content(1))
    assert read(one, 1) == bytes(content(1))


WRITER = """
import sys
from pathlib import Path
from engines.native.disk_store import BlockStore
size = 1 << 22
store = BlockStore(Path(sys.argv[1]), b"a" * 32, size, 1 << 34)
for number in range(1, 100):
    store.write(number, 0, memoryview(bytes([number]) * size))
    print(number, flush=True)
"""


def test_i_killed_in_the_middle_of_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    writer.stdout.readline()
    until = time.monotonic() + 30
    while not list(tmp_path.rglob("*.part")) and time.monotonic() < until:
        pass  # so that it is killed with a file half written
    writer.kill()
    writer.wait()
    again = BlockStore(tmp_path, OURS, 1 << 22, 1 << 34)
    into = memoryview(bytearray(1 << 22))
    known = [number for number in range(1, 100) if again.place(number) is not None]
    assert known
    for number in known:
        assert again.read(number, into)
        assert bytes(into) == bytes([number]) * (1 << 22)
    left = list(tmp_path.rglob("*.part"))
    assert len(left) <= 1
    monkeypatch.setattr(disk_store, "STALE_S", -1.0)
    again.scan()
    assert list(tmp_path.rglob("*.part")) == []
    assert again.counts.bytes_used == sum(path.stat().st_size for path in files(tmp_path))
