from __future__ import annotations

import pytest
from tokenizers import AddedToken

from engines.native.vocabulary import corpus
from engines.native.vocabulary.choice import choose
from engines.native.vocabulary.forms import Form, Vocabulary, extended
from engines.native.vocabulary.saving import measure
from engines.protocol import ChildError
from tests.engines.vocabulary.tokenizers_for_tests import byte_level

BASE = byte_level()
VOCABULARY = Vocabulary(BASE)


def test_tokens_before_and_after_are_those_of_the_two_tokenizers():
    forms = choose(VOCABULARY, ["REIT", "市盈率"], skip=False).forms
    grown = extended(BASE, forms)
    lines = ["a REIT is a REIT", "REIT 市盈率", "the bank"]
    saving = measure([lines[:2], lines[2:]], BASE, grown, forms, VOCABULARY.size)
    assert saving.before == sum(len(BASE.encode(line).ids) for line in lines)
    assert saving.after == sum(len(grown.encode(line).ids) for line in lines)
    assert (saving.lines, saving.characters, saving.inexact) == (3, sum(map(len, lines)), 0)
    by_text = {form.text: saving.used[VOCABULARY.size + place] for place, form in enumerate(forms)}
    assert by_text == {" REIT": 2, "REIT": 1, "市盈率": 1}
    assert saving.before - saving.after == sum((len(form.pieces) - 1) * by_text[form.text] for form in forms)
    assert [example[0] for example in saving.examples] == ["REIT 市盈率", "a REIT is a REIT"]
    assert "".join(saving.examples[0][1]) == "REIT 市盈率"  # a character of three tokens stands once
    text, before, after = saving.examples[1]
    assert "".join(after) == text
    assert len(before) > len(after)


def test_a_line_that_does_not_come_back_is_counted():
    """A token that swallows the blank before it, as `lstrip` does: the text would lose it."""
    form = Form("REIT", VOCABULARY.pieces("REIT"), single_word=False)
    grown = extended(BASE, [])
    grown.add_tokens([AddedToken("REIT", lstrip=True, normalized=False)])
    saving = measure([["a REIT", "REIT"]], BASE, grown, [form], VOCABULARY.size)
    assert saving.inexact == 1


def test_a_corpus_is_read_in_batches_with_its_ends_and_mark_taken_off(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes("\ufeffone\r\n\r\ntwo\nthree".encode())
    shares: list[float] = []
    assert list(corpus.batches(path, shares.append)) == [["one", "two", "three"]]
    assert shares[-1] == 1.0
    path.write_text("x" * (corpus.LINE + 5) + "\n")
    assert [len(line) for batch in corpus.batches(path, shares.append) for line in batch] == [corpus.LINE, 5]


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"fine\n" + b"\xff\xfe\x00")
    with pytest.raises(ChildError, match="UTF-8") as error:
        list(corpus.batches(path, lambda share: None))
    assert error.value.code == "bad_corpus"
