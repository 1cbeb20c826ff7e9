"""Texts of a team, kept in the file store: every change of them."""

from __future__ import annotations

import codecs
from typing import BinaryIO

from django.db import transaction

from engines.terms import MAX_CORPUS
from tursiops.accounts.models import Team
from tursiops.core import store
from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import Conflict, TursiopsError
from tursiops.jobs import queue
from tursiops.jobs.models import ENDED, Job
from tursiops.registry.models import Corpus

CHUNK = 1 << 20


def add_corpus(*, team: Team, actor: Actor, name: str, file: BinaryIO, size: int) -> Corpus:
    """Keep a text. Raises TursiopsError for what is empty, too large, or no UTF-8."""
    if size > MAX_CORPUS:
        raise TursiopsError(
            f"file: it has {size:,} bytes; at most {MAX_CORPUS:,} are taken.",
            code="too_large",
            hint="Take a sample of it: some megabytes tell the same.",
            fields={"file": [f"At most {MAX_CORPUS:,} bytes."]},
        )
    lines = _lines(file)
    file.seek(0)
    blob = store.put_stream(file)
    with transaction.atomic():
        corpus: Corpus = Corpus.objects.create(team=team, name=name, blob=blob, lines=lines)
        _tell(corpus, actor, "corpus.added", f"the corpus {name} was added")
    return corpus


def _lines(file: BinaryIO) -> int:
    """Lines that hold something. Raises TursiopsError for bytes that are no text, or none."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = done = 0
    begun = False  # a line that has text so far
    try:
        while data := file.read(CHUNK):
            text = decoder.decode(data)
            done += len(data)
            first, *rest = text.split("\n")
            begun = begun or bool(first.strip())
            for part in rest:
                lines += begun
                begun = bool(part.strip())
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise TursiopsError(
            "file: it is no UTF-8 text.",
            hint="Save it as UTF-8, one document or paragraph on a line.",
            fields={"file": [f"Not UTF-8, after about {done:,} bytes: {error.reason}."]},
        ) from error
    lines += begun
    if not lines:
        raise TursiopsError("file: it holds no text.", fields={"file": ["It holds no text."]})
    return lines


@transaction.atomic
def delete_corpus(*, corpus: Corpus, actor: Actor) -> None:
    """Raises Conflict while a job reads it."""
    running = Job.objects.filter(team=corpus.team, spec__corpus=str(corpus.pk)).exclude(state__in=ENDED).first()
    if running is not None:
        raise Conflict(
            f"{corpus} is in use by the job {running.title!r} ({running.state}).",
            code="in_use",
            hint="Cancel the job, or wait for its end.",
        )
    _tell(corpus, actor, "corpus.deleted", f"the corpus {corpus.name} was deleted")
    corpus.delete()
    transaction.on_commit(queue.send_garbage_collection)


def _tell(corpus: Corpus, actor: Actor, kind: str, text: str) -> None:
    record_change(
        team=corpus.team,
        actor=actor,
        kind=kind,
        subject_type="corpus",
        subject_id=corpus.pk,
        text=text,
        payload={"id": str(corpus.pk), "name": corpus.name},
    )
