"""Text from tokens, piece by piece, equals text from all of them. Names carry the case of cases/engine.md."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.serve.detokenize import Detokenizer
from tests.engines.weights import smollm2


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    gguf = smollm2()
    return load_tokenizer(open_model("gguf", {gguf.name: str(gguf)}))[0]


@pytest.fixture(scope="module")
def detokenizer(tokenizer: Tokenizer) -> Detokenizer:
    return Detokenizer(tokenizer, 49152)


def sentencepiece() -> Tokenizer:
    """Llama-2's way: ▁ for a blank, single bytes where no piece fits, the first blank dropped."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁He", "llo", "▁w", "o", "é"]
    tokenizer = Tokenizer(
        models.BPE({piece: i for i, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.add_special_tokens([AddedToken("<s>"), AddedToken("</s>")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "hello": 1, "wor": 2, "##ld": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def pieces_of(detokenizer: Detokenizer, ids: list[int]) -> list[str]:
    stream = detokenizer.stream()
    return [stream.push(token) for token in ids] + [stream.flush()]


@pytest.mark.parametrize(
    "text", ["🔥", "ď", "a🔥b", "naïve café", "日本語のテキスト", "👩‍👩‍👧‍👦 family", "  two  blanks\n"]
)
def test_a1_characters_of_several_tokens_come_whole(tokenizer: Tokenizer, detokenizer: Detokenizer, text: str) -> None:
    pieces = pieces_of(detokenizer, tokenizer.encode(text).ids)
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


@given(st.text(max_size=40))
@settings(max_examples=120, deadline=None)
def test_a1_any_text_streams_as_it_decodes(tokenizer: Tokenizer, detokenizer: Detokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    pieces = pieces_of(detokenizer, ids)
    whole = tokenizer.decode(ids)
    assert "".join(pieces) == whole
    assert sum(piece.count("\ufffd") for piece in pieces) == whole.count("\ufffd")


@given(st.lists(st.integers(0, 49151), max_size=30))
@settings(max_examples=150, deadline=None)
def test_a3_any_tokens_even_broken_bytes_stream_as_they_decode(
    tokenizer: Tokenizer, detokenizer: Detokenizer, ids: list[int]
) -> None:
    assert "".join(pieces_of(detokenizer, ids)) == tokenizer.decode(ids) == detokenizer.text(ids)


def test_a3_unfinished_character_at_the_end_is_replaced(tokenizer: Tokenizer, detokenizer: Detokenizer) -> None:
    ids = tokenizer.encode("ok 🔥").ids
    assert len(ids) > 3
    pieces = pieces_of(detokenizer, ids[:-1])
    assert "\ufffd" not in "".join(pieces[:-1])
    assert "".join(pieces) == "ok \ufffd"


def test_sentencepiece_bytes_blanks_and_first_blank() -> None:
    tokenizer = sentencepiece()
    detokenizer = Detokenizer(tokenizer, tokenizer.get_vocab_size())
    ids = [
        tokenizer.token_to_id(piece)
        for piece in ["<s>", "▁He", "llo", "▁w", "o", "<0xF0>", "<0x9F>", "<0x94>", "<0xA5>", "é"]
    ]
    pieces = pieces_of(detokenizer, ids)
    assert pieces[:6] == ["", "He", "llo", " w", "o", ""]
    assert "".join(pieces) == "Hello wo🔥é" == tokenizer.decode(ids)


def test_other_decoders_fall_back_on_a_window() -> None:
    tokenizer = wordpiece()
    detokenizer = Detokenizer(tokenizer, tokenizer.get_vocab_size())
    assert "".join(pieces_of(detokenizer, [1, 2, 3, 1])) == tokenizer.decode([1, 2, 3, 1]) == "hello world hello"


def test_special_tokens_are_no_text_and_ids_above_the_tokenizer_are_harmless(detokenizer: Detokenizer) -> None:
    assert detokenizer.text([1, 2, 999_999]) == ""
    assert detokenizer.token_bytes(1) == b"<|im_start|>"
    assert detokenizer.token_bytes(999_999) == b""
