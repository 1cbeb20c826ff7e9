"""Small tokenizers of the two kinds, trained or written in a moment."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEXT = [
    "The bank has liquidity and the bank has a hedge, and the liquidity of the bank is the bank's own.",
    "A hedge is a hedge; the bank, the hedge and the liquidity are in the report of the bank.",
] * 20


def byte_level() -> Tokenizer:
    """Words of TEXT are tokens, with their blanks; `<|end|>` is special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    return tokenizer


def sentencepiece(prefix: bool) -> Tokenizer:
    """As the loader makes one of a GGUF file (gguf_tokenizer). prefix: every text begins with a blank of its own."""
    vocab = {"<unk>": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}}
    for piece in ("▁", "a", "b", "c", "d", "ab", "▁ab", "cd"):
        vocab[piece] = len(vocab)
    merges = [("a", "b"), ("▁", "ab"), ("c", "d")]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    before = [normalizers.Prepend("▁")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", "▁")])
    after = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *after]
    )
    return tokenizer
