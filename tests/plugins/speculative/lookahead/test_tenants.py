import time

import numpy as np
import pytest

from plugins.speculative.lookahead.store import SMALLEST, nbytes
from plugins.speculative.lookahead.tenants import Tenants

pytestmark = pytest.mark.speculation


def text(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 50_000, count).astype(np.int32)


def keep(tenants: Tenants, salt: str, document: np.ndarray) -> None:
    tenants.add(salt, document)
    while tenants.work():
        pass


def test_a_cap_that_holds_no_store_is_refused_with_what_it_must_be():
    with pytest.raises(ValueError, match=f"lookahead_bytes is 1000.*{nbytes(SMALLEST)}"):
        Tenants(1000)


def test_the_longest_unused_salt_goes():
    tenants = Tenants(3 * nbytes(SMALLEST))
    for salt in "abc":
        keep(tenants, salt, text(1, 50))
    tenants.touch("a")
    keep(tenants, "d", text(2, 50))
    assert [salt for salt in "abcd" if tenants.get(salt)] == ["a", "c", "d"]
    assert tenants.stats()["lookahead_evicted_salts"] == 1


@pytest.mark.parametrize("kind", ["new", "one token", "a short period", "the same again"])
def test_the_cap_holds_whatever_comes(kind):
    cap = nbytes(4 * SMALLEST) + 1000
    tenants = Tenants(cap)
    for step in range(60):
        document = {
            "new": text(step, 2000),
            "one token": np.full(2000, 7, np.int32),
            "a short period": np.arange(2000, dtype=np.int32) % 3,
            "the same again": text(0, 2000),
        }[kind]
        keep(tenants, f"salt {step % 5}", document)
        stores = [store for salt in range(5) if (store := tenants.get(f"salt {salt}")) is not None]
        held = sum(store.tokens.nbytes + sum(part.nbytes for part in store.chains) for store in stores)
        assert held <= cap * 1.01
        assert tenants.stats()["lookahead_bytes"] <= cap
    if kind == "the same again":
        assert all(store.used < 2100 for store in stores)


def test_a_store_grows_with_its_text_and_keeps_it():
    tenants = Tenants(64 << 20)
    documents = [text(seed, 3000) for seed in range(20)]
    for document in documents:
        keep(tenants, "", document)
    store = tenants.get("")
    assert store is not None
    assert store.used > 20 * 3000
    assert store.novel(documents[0]) == []


def test_a_large_store_grows_a_piece_at_a_time_and_answers_meanwhile():
    tenants = Tenants(64 << 20)
    keep(tenants, "", text(0, 30_000))
    old, steps = tenants.get(""), 0
    assert old is not None
    for seed in range(1, 4):
        tenants.add("", text(seed, 30_000))
    while tenants.get("") is old:
        assert tenants.work()
        steps += 1
        assert tenants.stats()["lookahead_bytes"] <= tenants.cap
    assert steps > 4
    while tenants.work():
        pass
    grown = tenants.get("")
    assert grown is not None
    assert grown.capacity > old.capacity
    again = sum(len(stretch) for seed in range(4) for stretch in grown.novel(text(seed, 30_000)))
    assert again < 1000  # of 120,000 tokens: where pieces were cut


def test_a_salt_that_goes_while_it_grows_is_gone():
    tenants = Tenants(nbytes(1 << 17) + nbytes(1 << 16))
    keep(tenants, "a", text(0, 30_000))
    tenants.add("a", text(1, 40_000))
    tenants.work()
    keep(tenants, "b", text(2, 60_000))
    assert tenants.get("a") is None
    assert tenants.get("b") is not None
    assert tenants.stats()["lookahead_bytes"] <= tenants.cap
    assert not tenants.work()


def test_what_others_keep_is_not_seen_in_a_salts_store_nor_in_its_time():
    mine, shared = Tenants(64 << 20), Tenants(64 << 20)
    for tenants in (mine, shared):
        for seed in range(20):
            keep(tenants, "mine", text(seed, 500))
    for seed in range(200, 400):
        keep(shared, "theirs", text(seed, 500))
    probe = text(250, 500)  # what they have said
    one, other = mine.get("mine"), shared.get("mine")
    assert one is not None
    assert other is not None
    assert len(other.novel(probe)) == 1
    assert np.array_equal(one.tokens, other.tokens)
    assert one.chains[1].heads.tolist() == other.chains[1].heads.tolist()

    def least(tenants: Tenants) -> float:
        times = []
        for _ in range(40):
            start = time.perf_counter()
            for _ in range(5):
                store = tenants.get("mine")
                assert store is not None
                store.novel(probe)
            times.append(time.perf_counter() - start)
        return min(times)

    assert 0.5 < least(mine) / least(shared) < 2
