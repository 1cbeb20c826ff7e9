from __future__ import annotations

import pytest

from engines.native.vocabulary.choice import choose
from engines.native.vocabulary.forms import Vocabulary
from engines.protocol import ChildError
from engines.terms import MAX_TERMS
from tests.engines.vocabulary.tokenizers_for_tests import byte_level

VOCABULARY = Vocabulary(byte_level())


def refused(terms: list[str], **options: object) -> ChildError:
    with pytest.raises(ChildError) as error:
        choose(VOCABULARY, terms, **{"skip": False, **options})
    return error.value


def test_every_bad_term_is_named_by_its_place():
    error = refused(["REIT", "bank", "REIT", " x", "<|end|>"])
    assert error.code == "bad_terms"
    for said in ("terms[1] ('bank') is one token already", "terms[2]", "is there twice, first as terms[0]", "terms[3]"):
        assert said in error.message
    assert "terms[0] (" not in error.message


def test_a_long_list_of_bad_terms_is_cut_short():
    error = refused([f" {number}x" for number in range(30)])
    assert "and 20 more" in error.message


def test_none_and_too_many():
    assert refused([]).code == "no_terms"
    error = refused([f"t{number}x" for number in range(MAX_TERMS + 1)])
    assert error.code == "too_many_terms"
    assert f"{MAX_TERMS:,}" in error.message


def test_the_limit_of_the_vocabulary_says_how_many_fit():
    error = refused(["quantitative easing", "REIT"], limit=VOCABULARY.size + 3)
    assert error.code == "vocab_limit"
    assert "3 more tokens fit" in error.hint
    assert len(choose(VOCABULARY, ["quantitative easing", "REIT"], skip=False, limit=VOCABULARY.size + 4).forms) == 4


def test_what_needs_no_token_is_left_out_when_asked():
    choice = choose(VOCABULARY, ["bank", "REIT", "REIT"], skip=True)
    assert list(choice.terms) == ["REIT"]
    assert [(term, code) for term, code, _ in choice.skipped] == [("bank", "already_a_token"), ("REIT", "bad_term")]
    assert refused(["bank"], skip=True).code == "bad_terms"
