"""The work of one job: look for candidates, choose forms, measure, write. docs/domain-tokens.md has the report."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.native.loader.model_files import ModelFiles, open_model, read_json
from engines.native.loader.tokenizer import TokenizerFacts, load_tokenizer
from engines.native.pooling.config import Task
from engines.native.pooling.task import task_of
from engines.native.vocabulary import corpus, saving
from engines.native.vocabulary.choice import Choice, choose, rows_needed
from engines.native.vocabulary.forms import Vocabulary, extended
from engines.native.vocabulary.mine import Candidate, mine
from engines.protocol import Channel, ChildError
from engines.terms import MAX_TERMS

if TYPE_CHECKING:
    from engines.native.vocabulary import folder

RECORD = "domain_tokens.json"
"""File of the version that says which of its tokens were added, and from which pieces."""
SHOWN = 1000
"""Rows of a report: it travels in events. The version's own file names every token."""
_PLAN = ".plan"
_STEP = 0.01  # of the progress bar: less is not told


@dataclass(frozen=True, slots=True)
class Spec:
    """What the child gets. paths, format: the base's files. corpus: path, "" = none. mine: how many candidates to look
    for (0 = none); they are added to `terms`. staging: folder for the new files, "" = measure only."""

    paths: dict[str, str]
    format: str
    terms: list[str]
    corpus: str = ""
    mine: int = 0
    min_count: int = 5
    skip: bool = False
    dtype: str = "auto"
    staging: str = ""


def run(spec: Spec, channel: Channel) -> dict[str, Any]:
    """The report. Raises ChildError."""
    files = _opened(spec)
    base, facts = load_tokenizer(files)
    vocabulary = Vocabulary(base)
    spans = _Spans(channel, mines=bool(spec.mine), measures=bool(spec.corpus), writes=bool(spec.staging))
    candidates = _mined(spec, vocabulary, spans.next("looking for terms")) if spec.mine else []

    def grow(terms: list[str], skip: bool, text: str) -> tuple[Choice, saving.Saving | None]:
        choice = choose(vocabulary, terms, skip=skip)
        if not spec.corpus:
            return choice, None
        batches = corpus.batches(Path(spec.corpus), spans.next(text))
        grown = extended(base, choice.forms)
        return choice, saving.measure(batches, base, grown, choice.forms, vocabulary.size)

    terms = list(spec.terms)
    if candidates:
        # What was found may turn out to have no form; what was given is the user's word.
        tried = terms + [one.term for one in candidates if one.term not in spec.terms]
        terms += _worth(spec, vocabulary.size, *grow(tried[:MAX_TERMS], True, "trying what was found"))
        if not terms:
            raise _none_found(spec)
    choice, measured = grow(terms, spec.skip, "counting tokens")
    channel.log(f"{len(choice.terms)} terms, {len(choice.forms)} new tokens")
    rows = rows_needed(files.config.vocab, vocabulary.size + len(choice.forms))
    report: dict[str, Any] = {
        "vocabulary": {
            "before": vocabulary.size,
            "after": vocabulary.size + len(choice.forms),
            "rows_before": files.config.vocab,
            "rows": rows,
        },
        "terms": _terms(choice, vocabulary.size, measured)[:SHOWN],
        "terms_total": len(choice.terms),
        "skipped": [{"term": term, "code": code, "reason": why} for term, code, why in choice.skipped[:SHOWN]],
        "skipped_total": len(choice.skipped),
        "mined": len(terms) - len(spec.terms),
        "saving": None if measured is None else _saving(measured),
    }
    if spec.staging:
        from engines.native.vocabulary import folder  # torch: a look at what would be saved does without it

        growth = folder.Growth(choice.forms, vocabulary.size, rows)
        report |= _written(spec, files, facts, growth, choice, spans.next("writing the weights"))
    return report


def _opened(spec: Spec) -> ModelFiles:
    files = open_model(spec.format, spec.paths)
    if task_of(spec.format, files.paths) is not Task.GENERATE:
        raise ChildError(
            "wrong_task", "model: it makes vectors or scores", "Domain tokens are for models that generate."
        )
    if files.config.normed_head:
        raise ChildError(
            "not_supported",
            f"model: a {files.config.architecture} model of this kind scales the head's rows to length 1, so a new "
            "token's logit could pass those of its pieces",
            "Choose another base model.",
        )
    ends = {"embed.weight": "embedding table", "head.weight": "head"}
    quantized = [what for name, what in ends.items() if name in files.quantized]
    if quantized and files.gguf is None:
        raise ChildError(
            "not_supported",
            f"model: quantized {' and '.join(quantized)}; a new token's row is a mean of others, which needs floats",
            "Add the tokens to the version that this one was made of, and quantize the new version.",
        )
    return files


class _Spans:
    """Shares of the progress bar, by what takes how long."""

    def __init__(self, channel: Channel, *, mines: bool, measures: bool, writes: bool) -> None:
        self._channel = channel
        weights = [1.0, 2.0] * mines + [2.0] * measures + [2.0] * writes
        self._edges = [0.0]
        for weight in weights:
            self._edges.append(self._edges[-1] + weight / sum(weights))

    def next(self, text: str) -> Callable[[float], None]:
        begin, end = self._edges.pop(0), self._edges[0]
        self._channel.progress(begin, text)
        said = begin

        def progress(share: float) -> None:
            nonlocal said
            value = begin + share * (end - begin)
            if value - said >= _STEP or share >= 1:
                said = value
                self._channel.progress(value, text)

        return progress


def _mined(spec: Spec, vocabulary: Vocabulary, progress: Callable[[float], None]) -> list[Candidate]:
    def pieces_of(terms: list[str]) -> list[int]:
        encodings = vocabulary.tokenizer.encode_batch_fast([f" {term}" for term in terms], add_special_tokens=False)
        return [len(encoding.ids) for encoding in encodings]

    batches = corpus.batches(Path(spec.corpus), progress)
    found = mine(batches, pieces_of, most=spec.mine + spec.mine // 4 + 1, min_count=spec.min_count)
    if not found and not spec.terms:
        raise _none_found(spec)
    return found


def _none_found(spec: Spec) -> ChildError:
    return ChildError(
        "no_candidates",
        f"corpus: no run of words that takes several tokens is there {spec.min_count} times or more",
        "Give a longer corpus, a smaller min_count, or terms of your own.",
    )


def _worth(spec: Spec, first: int, choice: Choice, measured: saving.Saving | None) -> list[str]:
    """Of the terms that were found those that are used enough in fact, the best first: candidates that overlap, as
    "debt obligation" and "obligation fell", were each counted as if the other were not there."""
    given = set(spec.terms)
    rows = [row for row in _terms(choice, first, measured) if row["term"] not in given]
    return [str(row["term"]) for row in rows if row["count"] >= spec.min_count][: spec.mine]


def _terms(choice: Choice, first: int, measured: saving.Saving | None) -> list[dict[str, Any]]:
    """A row for each term; with a corpus those that save most come first. pieces: of one in running text, now."""
    rows = []
    place = first
    for term, forms in choice.terms.items():
        ids = range(place, place + len(forms))
        place += len(forms)
        row: dict[str, Any] = {"term": term, "ids": list(ids), "pieces": len(forms[0].pieces)}
        if measured is not None:
            used = [measured.used[token] for token in ids]
            row["count"] = sum(used)
            row["saved"] = sum(count * (len(form.pieces) - 1) for count, form in zip(used, forms, strict=True))
        rows.append(row)
    return rows if measured is None else sorted(rows, key=lambda row: -int(row["saved"]))


def _saving(measured: saving.Saving) -> dict[str, Any]:
    return {
        "lines": measured.lines,
        "characters": measured.characters,
        "before": measured.before,
        "after": measured.after,
        "inexact_lines": measured.inexact,
        "examples": [{"text": text, "before": before, "after": after} for text, before, after in measured.examples],
    }


def _written(
    spec: Spec,
    files: ModelFiles,
    facts: TokenizerFacts,
    growth: folder.Growth,
    choice: Choice,
    progress: Callable[[float], None],
) -> dict[str, Any]:
    from engines.native.vocabulary import folder

    target = folder.Folder(_staged(spec, [form.text for form in choice.forms]))
    folder.write(files, facts, growth, target, spec.dtype, progress)
    target.write_json(RECORD, _record(files, growth, choice))
    _check(target, files, facts, growth)
    sizes = {name: (target.path / name).stat().st_size for name in target.digests}
    return {
        "files": [{"name": name, "sha256": digest, "size": sizes[name]} for name, digest in target.digests.items()],
        "kept": target.kept,
        "format": "safetensors",
    }


def _staged(spec: Spec, texts: list[str]) -> Path:
    """The staging folder; emptied unless an earlier attempt at the same work left it."""
    path = Path(spec.staging)
    bases = sorted((name, str(Path(where).resolve())) for name, where in spec.paths.items())
    plan = hashlib.sha256(json.dumps([bases, texts, spec.dtype]).encode()).hexdigest()
    note = path / _PLAN
    if not note.is_file() or note.read_text() != plan:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        note.write_text(plan)
    return path


def _record(files: ModelFiles, growth: folder.Growth, choice: Choice) -> dict[str, Any]:
    """What was added, that of earlier times first."""
    earlier = read_json(files.paths, RECORD, required=False).get("tokens", [])
    owner = {form.text: term for term, forms in choice.terms.items() for form in forms}
    added = [
        {"id": growth.first + index, "text": form.text, "term": owner[form.text], "pieces": list(form.pieces)}
        for index, form in enumerate(growth.forms)
    ]
    return {"v": 1, "init": "mean_of_pieces", "tokens": [*earlier, *added]}


def _check(target: folder.Folder, files: ModelFiles, facts: TokenizerFacts, growth: folder.Growth) -> None:
    """Read the result as an engine will: every tensor in its place, the same special tokens, the new ids as planned."""
    paths = {name: str(files.paths[name]) for name in target.kept}
    made = open_model("safetensors", paths | {name: str(target.path / name) for name in target.digests})
    tokenizer, found = load_tokenizer(made)
    wrong = [
        name
        for name in ("bos_id", "eos_ids", "special_ids", "add_bos", "chat_template")
        if getattr(found, name) != getattr(facts, name)
    ]
    wrong += [
        form.text for index, form in enumerate(growth.forms) if tokenizer.token_to_id(form.text) != growth.first + index
    ]
    if made.config.vocab != growth.rows:
        wrong.append("vocab_size")
    if wrong:
        raise ChildError("not_exportable", f"model: the written tokenizer differs from the model's in {wrong[:5]}")
