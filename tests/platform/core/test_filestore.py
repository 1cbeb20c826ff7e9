"""The content-addressed store: digests are checked, links are used, nothing partial is left behind."""

import errno
import hashlib
import io
import os
import shutil
from types import SimpleNamespace

import pytest
from tursiops.core import filestore
from tursiops.core.filestore import FileStore, StoreError


@pytest.fixture
def store(tmp_path) -> FileStore:
    return FileStore(tmp_path / "store")


def leftovers(store: FileStore) -> list:
    return [path for path in (store.root / "incoming").rglob("*") if path.is_file()]


def test_put_file_links_on_the_same_file_system(store, tmp_path):
    source = tmp_path / "weights.gguf"
    source.write_bytes(b"weights")
    stored = store.put_file(source)
    assert stored.sha256 == hashlib.sha256(b"weights").hexdigest()
    assert stored.size == 7
    assert os.path.samefile(store.path_of(stored.sha256), source)
    assert leftovers(store) == []


def test_put_file_copies_where_links_are_refused(store, tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(errno.EXDEV, "cross-device link")

    source = tmp_path / "weights.gguf"
    source.write_bytes(b"weights")
    monkeypatch.setattr(filestore.os, "link", refuse)
    stored = store.put_file(source)
    assert not os.path.samefile(store.path_of(stored.sha256), source)
    assert store.verify(stored.sha256)


def test_wrong_digest_is_refused_and_leaves_nothing(store, tmp_path):
    source = tmp_path / "weights.gguf"
    source.write_bytes(b"weights")
    for put in (
        lambda: store.put_file(source, sha256="0" * 64),
        lambda: store.put_stream(io.BytesIO(b"x"), sha256="0" * 64),
    ):
        with pytest.raises(StoreError, match="expected 0000") as caught:
            put()
        assert caught.value.code == "wrong_digest"
    assert list(store.files()) == []
    assert leftovers(store) == []


def test_full_disk_is_seen_before_the_work(store, monkeypatch):
    monkeypatch.setattr(filestore.shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(StoreError, match="11 bytes") as caught:
        store.put_stream(io.BytesIO(b"x" * 11), size=11)
    assert caught.value.code == "disk_full"
    assert caught.value.hint


def test_disk_that_fills_up_half_way_leaves_nothing(store):
    class FillsUp(io.BytesIO):
        def read(self, size=-1):
            if self.tell() >= 100:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().read(100)

    with pytest.raises(StoreError) as caught:
        store.put_stream(FillsUp(b"x" * 500))
    assert caught.value.code == "disk_full"
    assert leftovers(store) == []


def test_missing_source_is_explained(store, tmp_path):
    with pytest.raises(StoreError, match=r"gone\.gguf") as caught:
        store.put_file(tmp_path / "gone.gguf")
    assert caught.value.code == "unreadable"


def test_verify_sees_changed_bytes(store):
    stored = store.put_stream(io.BytesIO(b"weights"))
    assert store.verify(stored.sha256)
    store.path_of(stored.sha256).write_bytes(b"weightz")
    assert not store.verify(stored.sha256)


def test_file_cut_short_in_the_store_is_replaced(store):
    stored = store.put_stream(io.BytesIO(b"weights"))
    store.path_of(stored.sha256).write_bytes(b"wei")
    store.put_stream(io.BytesIO(b"weights"))
    assert store.verify(stored.sha256)


def test_a_linked_file_that_its_owner_writes_to_is_seen_and_replaced_by_a_good_one(store, tmp_path):
    source, good = tmp_path / "weights.gguf", tmp_path / "again.gguf"
    source.write_bytes(b"weights")
    good.write_bytes(b"weights")
    stored = store.put_file(source)
    assert not store.altered(stored.sha256)
    with source.open("r+b") as file:  # in place: the same file
        file.write(b"WEIGHTS")
    assert store.altered(stored.sha256)
    assert store.claim(stored.sha256, stored.size) is None
    store.put_file(good)
    assert not store.altered(stored.sha256)
    assert store.verify(stored.sha256)
    assert source.read_bytes() == b"WEIGHTS"


def test_bytes_are_read_again_only_after_a_change(store, tmp_path, monkeypatch):
    source = tmp_path / "weights.gguf"
    source.write_bytes(b"weights")
    sha256 = store.put_file(source).sha256
    reads = []
    verify = FileStore.verify
    monkeypatch.setattr(FileStore, "verify", lambda self, digest: reads.append(digest) or verify(self, digest))
    store.claim(sha256, 7)  # marks it as used
    assert not store.altered(sha256)
    assert reads == []
    os.utime(source)  # touched, no more
    assert not store.altered(sha256)
    assert not store.altered(sha256)
    assert reads == [sha256]
    source.write_bytes(b"weightz")
    assert store.altered(sha256)
    assert store.altered(sha256)
    assert reads == [sha256] * 2, "of bad ones it is known, too"


def test_what_an_older_release_has_stored_is_believed_as_it_is_found(store):
    stored = store.put_stream(io.BytesIO(b"weights"))
    shutil.rmtree(store.root / "noted")
    assert not store.altered(stored.sha256)
    store.path_of(stored.sha256).write_bytes(b"weightz")
    assert store.altered(stored.sha256)
    store.remove(stored.sha256)
    assert not [path for path in (store.root / "noted").rglob("*") if path.is_file()]


@pytest.mark.parametrize("text", ["", "../../etc/passwd", "A" * 64, "0" * 63])
def test_path_of_takes_digests_only(store, text):
    with pytest.raises(ValueError, match="SHA-256"):
        store.path_of(text)


def test_adopt_moves_a_finished_download(store):
    part = store.incoming("job") / "model.safetensors.part"
    part.write_bytes(b"weights")
    stored = store.adopt(part, hashlib.sha256(b"weights").hexdigest())
    assert store.verify(stored.sha256)
    assert not part.exists()
