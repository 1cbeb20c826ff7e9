"""Rows and files of the store stay together, and the garbage collector takes only what nothing refers to."""

import io
import time

import pytest
from tursiops.core import store
from tursiops.core.models import Blob, BlobReplica

from tests import factories


@pytest.fixture(autouse=True)
def _own_store(settings, tmp_path):
    settings.STORE_DIR = tmp_path / "store"


@pytest.mark.django_db
def test_put_writes_blob_and_replica_once(settings):
    blob = store.put_stream(io.BytesIO(b"weights"))
    store.put_stream(io.BytesIO(b"weights"))
    assert Blob.objects.get().size == 7
    assert BlobReplica.objects.get().node_name == settings.NODE_NAME
    assert store.open_blob(blob.sha256).read() == b"weights"


@pytest.mark.django_db
def test_register_wants_the_whole_file():
    with pytest.raises(store.StoreError) as caught:
        store.register("0" * 64, 7)
    assert caught.value.code == "missing"
    blob = store.put_stream(io.BytesIO(b"weights"))
    with pytest.raises(store.StoreError, match="expected 8"):
        store.register(blob.sha256, 8)


@pytest.mark.django_db
def test_garbage_is_what_no_row_refers_to():
    used, loose = store.put_stream(io.BytesIO(b"used")), store.put_stream(io.BytesIO(b"loose!"))
    factories.make_version(files={"a.gguf": used})
    log = store.put_stream(io.BytesIO(b"log"))
    factories.make_job(log_blob=log)
    collected = store.collect_garbage(older_than=time.time() + 10)
    assert (collected.files, collected.bytes) == (1, 6)
    assert set(Blob.objects.values_list("pk", flat=True)) == {used.pk, log.pk}
    assert not store.local().has(loose.sha256)
    assert store.verify(used.sha256)
    assert store.verify(log.sha256)


@pytest.mark.django_db
def test_garbage_collector_spares_what_is_new():
    blob = store.put_stream(io.BytesIO(b"just imported"))
    assert store.collect_garbage(older_than=time.time() - 3600).files == 0
    assert store.verify(blob.sha256)


@pytest.mark.django_db
def test_file_without_rows_is_collected_too():
    stored = store.local().put_stream(io.BytesIO(b"left by a killed import"))
    assert store.collect_garbage(older_than=time.time() + 10).files == 1
    assert not store.local().has(stored.sha256)


@pytest.mark.django_db
def test_blob_row_stays_while_another_node_has_it():
    blob = store.put_stream(io.BytesIO(b"weights"))
    BlobReplica.objects.create(blob=blob, node_name="other")
    store.collect_garbage(older_than=time.time() + 10)
    assert [replica.node_name for replica in blob.replicas.all()] == ["other"]
