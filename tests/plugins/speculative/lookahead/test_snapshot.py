import logging
import os
import stat
import threading
import time

import numpy as np
import pytest

from engines.native.speculation.proposer import ProposerSettings
from plugins.speculative.lookahead import Lookahead, snapshot
from plugins.speculative.lookahead.snapshot import NAME
from plugins.speculative.lookahead.survival import CLASSES, GLOBAL
from tests.plugins.speculative.drive import begin, grow, history_of, propose

pytestmark = pytest.mark.speculation

SAID = np.random.default_rng(5).integers(0, 900, 80).tolist()


def started(folder, identity="model a", **options) -> tuple[Lookahead, object]:
    history = history_of(2, 200)
    settings = ProposerSettings(history, vocab=1000, identity=identity, folder=folder, options=options)
    return Lookahead(settings), history


def used(folder, **options) -> Lookahead:
    """One that has seen SAID, and learned from a second row."""
    lookahead, history = started(folder, **options)
    begin(lookahead, history, 0, SAID, "tenant")
    lookahead.end(0)
    begin(lookahead, history, 1, SAID[:40], "tenant")
    for known in range(40, 60, 4):
        propose(lookahead, [1], 8)
        grow(lookahead, history, 1, SAID[known : known + 4])
    lookahead.end(1)
    return lookahead


def guessed(lookahead, history, salt="tenant") -> list[int]:
    begin(lookahead, history, 0, SAID[:30], salt)
    return propose(lookahead, [0], 8)[0].tokens.tolist()


def test_a_restart_remembers_what_was_said_and_what_held(tmp_path):
    before = used(tmp_path)
    before.close()
    after, history = started(tmp_path)
    assert after._survival.hits == before._survival.hits
    assert after._survival.rates == pytest.approx(before._survival.rates)
    assert guessed(after, history) == SAID[30:38]
    assert guessed(after, history, "another") == []
    assert stat.S_IMODE(os.stat(tmp_path / NAME).st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def flipped(raw: bytes) -> bytes:
    return raw[:-30] + bytes([raw[-30] ^ 1]) + raw[-29:]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (flipped, "checksum is wrong"),
        (lambda raw: raw[:-1], "checksum is wrong"),
        (lambda raw: raw[:20], "no lookahead snapshot"),
        (lambda raw: b"", "no lookahead snapshot"),
        (lambda raw: b"PK" + raw[2:], "no lookahead snapshot"),
        (lambda raw: raw[:8] + b"\x07" + raw[9:], "version 7"),
    ],
)
def test_a_file_that_is_not_whole_is_ignored_with_a_warning(tmp_path, caplog, spoil, says):
    used(tmp_path).close()
    raw = spoil((tmp_path / NAME).read_bytes())
    (tmp_path / NAME).write_bytes(raw)
    with caplog.at_level(logging.WARNING):
        after, history = started(tmp_path)
    assert says in caplog.text
    assert guessed(after, history) == []
    assert (tmp_path / NAME).read_bytes() == raw


def test_one_of_another_model_is_ignored_with_a_warning(tmp_path, caplog):
    used(tmp_path).close()
    after, history = started(tmp_path, identity="model b")
    assert "is of model 'model a'; this one is 'model b'" in caplog.text
    assert guessed(after, history) == []


def test_one_with_other_classes_or_other_tokens_is_ignored(tmp_path, caplog):
    short = snapshot.Snapshot("model a", [1.0], [2.0], [])
    snapshot.write(tmp_path, short)
    started(tmp_path)
    assert f"it counts 1 classes of guesses; this version has {CLASSES}" in caplog.text
    strange = snapshot.Snapshot("model a", [1.0] * CLASSES, [2.0] * CLASSES, [("", np.array([5, 1000], np.int32))])
    snapshot.write(tmp_path, strange)
    started(tmp_path)
    assert "outside the vocabulary of 1000" in caplog.text


def test_it_is_written_between_steps_when_it_is_time(tmp_path):
    lookahead = used(tmp_path, lookahead_snapshot_s=0.0)
    lookahead._keeper._writer.join()
    assert snapshot.read(tmp_path, "model a", CLASSES, 1000) is not None
    lookahead.close()
    assert dict(snapshot.read(tmp_path, "model a", CLASSES, 1000).texts)["tenant"].tolist()[:80] == SAID


def test_engines_that_share_a_folder_leave_a_whole_file_and_each_other_s_work_alone(tmp_path):
    rng = np.random.default_rng(3)
    written = [
        snapshot.Snapshot("model a", [1.0] * CLASSES, [2.0] * CLASSES, [("t", rng.integers(0, 900, size, np.int32))])
        for size in (20_000, 60_000)
    ]
    ended = threading.Event()

    def write(each: snapshot.Snapshot) -> None:
        while not ended.is_set():
            snapshot.write(tmp_path, each)

    writers = [threading.Thread(target=write, args=(each,)) for each in written]
    for writer in writers:
        writer.start()
    seen, until = set(), time.monotonic() + 5
    while len(seen) < 2 and time.monotonic() < until:
        found = snapshot.read(tmp_path, "model a", CLASSES, 1000)
        if found is not None:
            seen.add(len(found.texts[0][1]))
    ended.set()
    for writer in writers:
        writer.join()
    assert seen == {20_000, 60_000}, "each is read whole, whoever wrote it"
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_only_what_nobody_writes_any_more_is_cleared_away(tmp_path):
    busy, killed = tmp_path / f"{NAME}.busy", tmp_path / f"{NAME}.killed"
    for path in (busy, killed):
        path.write_bytes(b"cut off")
    os.utime(killed, (time.time() - 2 * snapshot.CUT_OFF_S,) * 2)
    used(tmp_path).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, busy.name]


def test_an_idle_engine_that_ends_last_does_not_undo_what_another_has_learned(tmp_path):
    used(tmp_path).close()
    idle, _ = started(tmp_path)
    busy, history = started(tmp_path)
    begin(busy, history, 0, SAID[::-1], "tenant")
    busy.end(0)
    busy.close()
    learned = (tmp_path / NAME).read_bytes()
    idle.close()
    assert (tmp_path / NAME).read_bytes() == learned
    again, history = started(tmp_path)
    begin(again, history, 0, SAID[5:70:2], "tenant")
    again.end(0)
    again.close()
    assert (tmp_path / NAME).read_bytes() != learned, "one that has seen something new writes it"


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    used(tmp_path / "file").close()
    assert "can't be written" in caplog.text


def test_a_larger_snapshot_than_the_cap_keeps_the_newest(tmp_path):
    lookahead, history = started(tmp_path)
    rng = np.random.default_rng(1)
    for _ in range(100):
        begin(lookahead, history, 0, rng.integers(0, 900, 150).tolist(), "tenant")
        lookahead.end(0)
    begin(lookahead, history, 0, SAID, "tenant")
    lookahead.close()
    after, history = started(tmp_path, lookahead_bytes=100_000)
    assert after.stats()["lookahead_bytes"] <= 100_000
    assert guessed(after, history) == SAID[30:38]
    assert GLOBAL
