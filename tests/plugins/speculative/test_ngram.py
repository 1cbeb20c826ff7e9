import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.native.speculation.proposer import ProposerSettings
from plugins.speculative.ngram import CONFIDENCE, DRAFTS, MAX_N, MIN_N, Ngram, newest
from tests.plugins.speculative.drive import begin, history_of, propose

pytestmark = pytest.mark.speculation


@given(st.lists(st.sampled_from([0, 1, 256, 257, 65536]), min_size=1, max_size=40), st.integers(1, 4))
def test_the_newest_place_is_that_of_a_search_through_every_place(tokens, n):
    """Bytes that are equal across two tokens are no place."""
    places = [at for at in range(n, len(tokens)) if tokens[at - n : at] == tokens[-n:]]
    assert newest(np.array(tokens, np.int32).tobytes(), min(n, len(tokens))) == max(places, default=0)


def test_what_followed_the_longest_newest_text_is_guessed():
    history = history_of(3, 60)
    ngram = Ngram(ProposerSettings(history, vocab=100))
    begin(ngram, history, 0, [1, 2, 3, 4, 50, 51, 52, 53, 54, 55, 9, 3, 4, 60, 1, 2, 3, 4])
    begin(ngram, history, 1, [7, 8, 70, 71, 7, 8])
    begin(ngram, history, 2, [7, 8, 9])
    long, short, none = propose(ngram, [0, 1, 2], 31)
    assert (MIN_N, MAX_N, DRAFTS) == (2, 4, 5)
    assert long.tokens.tolist() == [50, 51, 52, 53, 54]
    assert long.chain
    assert long.confidence.tolist() == pytest.approx([CONFIDENCE] * 5)
    assert short.tokens.tolist() == [70, 71, 7, 8]
    assert len(none) == 0
    assert [len(tree) for tree in propose(ngram, [0, 1], [3, 0])] == [3, 0]
