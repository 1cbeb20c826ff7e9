import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.speculative.lookahead.chains import WINDOW
from plugins.speculative.lookahead.store import CONTEXT, END, SMALLEST, STRIDE, Store, nbytes

pytestmark = pytest.mark.speculation


def stood(store: Store, tokens: list[int]) -> bool:
    """Whether these tokens can be found by their first ones."""
    chains = store.chains[1]
    position, steps = chains.heads[int(chains.slots(np.array(tokens[: chains.order], np.int32))[0])], 0
    while position and steps < 5000:
        if store.tokens[position - chains.order : position - chains.order + len(tokens)].tolist() == tokens:
            return True
        position, steps = chains.before[position], steps + 1
    return False


def test_ten_million_tokens_take_less_than_a_gigabyte():
    store = Store(10_000_000)
    arrays = [
        store.tokens,
        *(array for chains in store.chains for array in (chains._heads, chains._before)),
    ]
    assert sum(array.nbytes for array in arrays) <= store.nbytes * 1.001
    assert store.nbytes == nbytes(10_000_000) < 1e9


@given(st.lists(st.lists(st.integers(0, 50_000), min_size=4, max_size=700), min_size=1, max_size=30))
@settings(max_examples=30, deadline=None)
def test_the_newest_text_is_findable_and_the_ring_keeps_its_bounds(documents):
    store = Store()
    for document in documents:
        store.append(np.array(document, np.int32))
        assert stood(store, document)
        assert store.used <= store.capacity
    outside = np.concatenate((store.tokens[:WINDOW], store.tokens[WINDOW + store.capacity :]))
    assert (outside == END).all()


def test_the_oldest_goes_first():
    store, rng = Store(), np.random.default_rng(1)
    documents = [rng.integers(0, 50_000, 500).astype(np.int32) for _ in range(12)]
    for document in documents:
        store.append(document)
    assert [stood(store, document.tolist()) for document in documents] == [False] * 4 + [True] * 8
    kept = store.text()
    assert kept[-501:-1].tolist() == documents[-1].tolist()


def test_what_stands_there_is_not_written_again_but_what_is_new_is_with_what_leads_to_it():
    rng = np.random.default_rng(2)
    prompt, first, second = (rng.integers(0, 50_000, count).astype(np.int32) for count in (400, 60, 60))
    store = Store()
    store.append(np.concatenate((prompt, first)))
    assert store.novel(np.concatenate((prompt, first))) == []
    (stretch,) = store.novel(np.concatenate((prompt, second)))
    again = len(stretch) - len(second)  # known text that leads there
    assert CONTEXT <= again < CONTEXT + STRIDE
    assert stretch.tolist() == [*prompt[-again:].tolist(), *second.tolist()]
    (whole,) = store.novel(second)
    assert whole.tolist() == second.tolist()


def test_another_ring_can_be_filled_with_the_text():
    rng = np.random.default_rng(3)
    store, larger = Store(), Store(4 * SMALLEST)
    documents = [rng.integers(0, 50_000, 100).astype(np.int32) for _ in range(60)]
    for document in documents:
        store.append(document)
    text, moved, pieces = store.text(), 0, 0
    while moved < len(text):
        moved, pieces = larger.fill(text, moved), pieces + 1
    assert pieces < 5
    kept = [stood(larger, document.tolist()) for document in documents]
    assert kept == [stood(store, document.tolist()) for document in documents]
    assert kept[-40:] == [True] * 40
