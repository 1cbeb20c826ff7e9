"""Tokens of a corpus before and after, in all and by term, and whether its lines come back exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer

from engines.native.serve.detokenize import Detokenizer
from engines.native.vocabulary.forms import Form

EXAMPLES = 3
_SHOWN = 300  # characters of a line that is shown


@dataclass(slots=True)
class Saving:
    """before, after: tokens. used: new token's id → occurrences. inexact: lines that detokenize to another text though
    the base model's tokens do not. examples: (line, tokens before, tokens after), those that shrink most."""

    lines: int = 0
    characters: int = 0
    before: int = 0
    after: int = 0
    used: Counter[int] = field(default_factory=Counter)
    inexact: int = 0
    examples: list[tuple[str, list[str], list[str]]] = field(default_factory=list)


def measure(
    batches: Iterable[Sequence[str]], base: Tokenizer, grown: Tokenizer, forms: Sequence[Form], first: int
) -> Saving:
    """first: id of the first form's token; the others follow it."""
    saving = Saving()
    rows = first + len(forms)
    reads, read_before = Detokenizer(grown, rows), Detokenizer(base, first)
    best: list[tuple[float, str]] = []
    for lines in batches:
        before = base.encode_batch_fast(list(lines), add_special_tokens=False)
        after = grown.encode_batch_fast(list(lines), add_special_tokens=False)
        for line, old, new in zip(lines, before, after, strict=True):
            ids = new.ids
            saving.before += len(old.ids)
            saving.after += len(ids)
            saving.used.update(token for token in ids if token >= first)
            if len(ids) < len(old.ids):
                shown = min(1.0, _SHOWN / len(line))  # the share of the line that an example shows
                best.append(((len(old.ids) - len(ids)) * shown, line))
                # Lines without a new token are the base model's, token for token.
                if reads.unabridged.text(ids) != line and read_before.unabridged.text(old.ids) == line:
                    saving.inexact += 1
        saving.lines += len(lines)
        saving.characters += sum(map(len, lines))
        best = sorted(set(best), reverse=True)[:EXAMPLES]  # a line that is there often is one example
    for _, line in best:
        begin = line[:_SHOWN]
        saving.examples.append((begin, texts(base, begin), texts(grown, begin)))
    return saving


def texts(tokenizer: Tokenizer, text: str) -> list[str]:
    """The pieces of `text` that its tokens stand for; a character cut by tokens goes with the first of them."""
    pieces = []
    last = 0
    for begin, end in tokenizer.encode(text, add_special_tokens=False).offsets:
        pieces.append(text[max(begin, last) : end])
        last = max(last, end)
    return pieces
