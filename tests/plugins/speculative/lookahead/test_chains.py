import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.speculative.lookahead.chains import Chains, heads_for, matched, word

pytestmark = pytest.mark.speculation

TEXTS = st.lists(st.integers(0, 4) | st.integers(0, 200_000), min_size=0, max_size=120)


def before(tokens: list[int], order: int) -> list[int]:
    """Where the newest `order` tokens stood before, newest first, by trying every place."""
    tail = tokens[len(tokens) - order :]
    return [p for p in range(len(tokens) - 1, order - 1, -1) if tokens[p - order : p] == tail]


def number(tokens: list[int]) -> int:
    return word(memoryview(np.array(tokens, np.int32)).cast("B"), len(tokens), len(tokens))


def walked(chains: Chains, tokens: list[int]) -> list[int]:
    position, found = chains.heads[number(tokens[len(tokens) - chains.order :]) % chains.size], []
    while position:
        found.append(position)
        position = chains.before[position]
    return found


@given(TEXTS, st.sampled_from([2, 3, 5, 6]), st.data())
@settings(max_examples=60, deadline=None)
def test_a_chain_leads_to_every_place_of_the_n_gram_newest_first_however_it_was_linked(tokens, order, data):
    if len(tokens) <= order:
        return
    chains, text = Chains(order, len(tokens), heads_for(data.draw(st.integers(1, 5000)))), np.array(tokens, np.int32)
    slots = chains.slots(text)[:-1]
    cut = data.draw(st.integers(0, len(slots)))
    chains.link_all(slots[:cut], order)
    for place in range(cut, len(slots)):
        chains.link(number(tokens[place : place + order]), place + order)
    found = walked(chains, tokens)
    assert found == sorted(found, reverse=True)
    same = [p for p in found if tokens[p - order : p] == tokens[len(tokens) - order :]]
    assert same == before(tokens, order)


def test_slots_are_those_of_the_numbers_and_the_order_of_tokens_counts():
    chains = Chains(2, 8, heads_for(1000))
    pairs = [[3, 5], [5, 3], [1, 7], [2, 6], [-1, 199_999]]
    slots = [chains.slots(np.array(pair, np.int32)).tolist() for pair in pairs]
    assert slots == [[number(pair) % chains.size] for pair in pairs]
    assert len(set(map(tuple, slots))) == 5  # 3 + 5 = 5 + 3 = 1 + 7, but they are other texts


def test_the_number_of_heads_is_prime():
    for power in range(8, 25):
        heads = heads_for(1 << power)
        assert (1 << power) - 20 < heads < 1 << power
        assert all(heads % divisor for divisor in range(2, int(heads**0.5) + 1))


@given(TEXTS.filter(lambda tokens: len(tokens) > 1), st.data())
@settings(max_examples=60, deadline=None)
def test_matched_is_the_length_of_the_common_end(tokens, data):
    raw = memoryview(np.array(tokens, np.int32)).cast("B")
    one, other = (data.draw(st.integers(1, len(tokens))) for _ in range(2))
    span = min(one, other, 32)
    length = 0
    while length < span and tokens[one - 1 - length] == tokens[other - 1 - length]:
        length += 1
    assert matched(word(raw, one, span), word(raw, other, span), span) == length
