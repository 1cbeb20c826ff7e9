"""What is added for a term: which texts are matched, that they come back, and that other texts are left alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from engines.native.serve.detokenize import Detokenizer
from engines.native.vocabulary.choice import choose
from engines.native.vocabulary.forms import Refused, Vocabulary, extended
from engines.protocol import ChildError
from tests.engines.vocabulary.tokenizers_for_tests import byte_level, sentencepiece

TERMS = ["quantitative easing", "REIT", "市盈率", "credit default", "credit default swap", "A股", "S&P 500"]
BASE = byte_level()
VOCABULARY = Vocabulary(BASE)
CHOICE = choose(VOCABULARY, TERMS, skip=False)
GROWN = extended(BASE, CHOICE.forms)


def _tokens(text: str) -> list[str]:
    return [token for token in GROWN.encode(text, add_special_tokens=False).tokens if token.strip() in TERMS]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a quantitative easing of", [" quantitative easing"]),
        ("quantitative easing", ["quantitative easing"]),
        ("(REIT) and REIT", ["REIT", " REIT"]),
        ("fREIT xREITs", []),  # in the middle of words
        ("我们的市盈率很高", ["市盈率"]),  # no blanks in Chinese
        ("a credit default swap", [" credit default swap"]),  # the longest
        ("credit default swap", ["credit default swap"]),
        ("the A股", [" A股"]),
        ("S&P 500,", ["S&P 500"]),
    ],
)
def test_terms_are_found_where_they_stand(text, found):
    assert _tokens(text) == found


def test_ids_follow_the_base_in_the_order_given():
    for place, form in enumerate(CHOICE.forms):
        assert GROWN.token_to_id(form.text) == VOCABULARY.size + place


def test_pieces_are_the_base_models_reading_of_the_form():
    for form in CHOICE.forms:
        assert list(form.pieces) == BASE.encode(form.text, add_special_tokens=False).ids
        assert len(form.pieces) > 1


def test_a_word_of_the_vocabulary_is_one_token_already():
    refused = VOCABULARY.forms("bank")
    assert isinstance(refused, Refused)
    assert refused.code == "already_a_token"


def test_the_beginning_of_a_longer_word_gets_no_token_with_a_blank():
    """ " liquidit" would cut every "liquidity" of the base."""
    forms = VOCABULARY.forms("liquidit")
    assert not isinstance(forms, Refused)
    assert [form.text for form in forms] == ["liquidit"]
    grown = extended(BASE, forms)
    text = "the liquidity of liquidit"
    assert grown.encode("the liquidity").ids == BASE.encode("the liquidity").ids
    assert grown.encode(text).tokens[-1] == "liquidit"


def test_a_term_with_a_special_token_in_it_is_refused():
    refused = VOCABULARY.forms("a<|end|>b")
    assert isinstance(refused, Refused)
    assert refused.code == "holds_special_token"


def test_a_form_that_a_byte_decoder_would_garble_is_left_out():
    """ "Économie" is spelled in the alphabet that stands for bytes; with its blank it is not."""
    choice = choose(VOCABULARY, ["Économie"], skip=False)
    assert [form.text for form in choice.forms] == [" Économie"]
    grown = extended(BASE, choice.forms)
    assert grown.decode(grown.encode("une Économie").ids) == "une Économie"


def test_a_tokenizer_that_adds_blanks_after_added_tokens_is_refused():
    with pytest.raises(ChildError, match=r"terms\[0\].*come back") as error:
        choose(Vocabulary(sentencepiece(prefix=True)), ["abcd"], skip=False)
    assert error.value.code == "bad_terms"


def test_sentencepiece_without_a_prefix_takes_terms():
    base = sentencepiece(prefix=False)
    choice = choose(Vocabulary(base), ["abcd"], skip=False)
    grown = extended(base, choice.forms)
    text = "ab abcd (abcd) é abcdcd"
    ids = grown.encode(text, add_special_tokens=False).ids
    assert len(ids) < len(base.encode(text, add_special_tokens=False).ids)
    assert Detokenizer(grown, grown.get_vocab_size()).text(ids) == text


def test_a_tokenizer_without_bytes_is_refused():
    with pytest.raises(ChildError, match="no bytes per token"):
        Vocabulary(Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]")))


WORDS = st.sampled_from([*TERMS, "bank", "liquidity", "the", "Économie", "的", "x", "quantitative", "easing", "500"])
GLUE = st.sampled_from([" ", "", "  ", "\n", ", ", "(", "1", "é", "\u00a0"])


@settings(max_examples=100)
@given(st.lists(st.tuples(WORDS, GLUE), max_size=12))
def test_every_text_comes_back_in_no_more_tokens(parts):
    text = "".join(word + glue for word, glue in parts)
    old, new = (one.encode(text, add_special_tokens=False).ids for one in (BASE, GROWN))
    detokenizer = Detokenizer(GROWN, GROWN.get_vocab_size())
    assert detokenizer.text(new) == text
    assert GROWN.decode(new) == text
    stream = detokenizer.stream()
    assert "".join([stream.push(token) for token in new]) + stream.flush() == text
    if not any(term in text for term in TERMS):
        assert new == old
    assert len(new) <= len(old)
