"""The job kind `registry.domain_tokens`: a version's vocabulary grown by the user's terms. docs/domain-tokens.md.

A preview looks for candidates and counts what they save; it belongs to the model and makes nothing. Else the job's
subject is the version that it makes.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

from django.db import transaction

from engines import terms as door
from engines.api import AddsTokens
from engines.protocol import ChildError
from tursiops.core import registry, store
from tursiops.core.audit import Actor
from tursiops.core.errors import Conflict, TursiopsError
from tursiops.jobs import services as jobs
from tursiops.jobs.kinds import JobKind
from tursiops.jobs.models import Job, JobState
from tursiops.jobs.run import JobRun, Outcome
from tursiops.registry import imports, services
from tursiops.registry.models import Corpus, LineageEdge, LineageKind, SourceKind, Version, VersionState

KIND = "registry.domain_tokens"
ENGINE = "native"
MAX_CANDIDATES = 1000
DTYPES = ("auto", "float32", "bfloat16", "float16")
_GROW_SHARE = 0.95  # of the progress bar; the rest is taking the files in
_NAMED = 20


def add_domain_tokens(
    *,
    base: Version,
    actor: Actor,
    terms: list[str],
    corpus: Corpus | None = None,
    candidates: int = 0,
    min_count: int = 5,
    skip_unneeded: bool = False,
    dtype: str = "auto",
    preview: bool = False,
    idempotency_key: str | None = None,
) -> Job:
    """Start the job. The caller has seen that base and corpus are of his team.

    Raises TursiopsError naming the field, or Conflict for a base that is not ready.
    """
    team = base.model.team
    if idempotency_key is not None:
        past: Job | None = Job.objects.filter(team=team, idempotency_key=idempotency_key).first()
        if past is not None:
            return past
    _check(base, terms, corpus, candidates, dtype, skip_unneeded)
    spec: dict[str, Any] = {
        "base": str(base.pk),
        "terms": terms,
        "corpus": str(corpus.pk) if corpus else "",
        "candidates": candidates,
        "min_count": min_count,
        "skip_unneeded": skip_unneeded,
        "dtype": dtype,
        "preview": preview,
    }
    with transaction.atomic():
        version = None
        if not preview:
            about = f"{base} + domain tokens"
            version = services.next_version(base.model, source_kind=SourceKind.JOB, source_ref=about)
        # A version's jobs are those that made it, so a preview belongs to the model.
        subject = base.model_id if version is None else version.pk
        job = jobs.enqueue_job(
            team=team,
            actor=actor,
            kind=KIND,
            title=f"Count what domain tokens save in {base}" if preview else f"Add domain tokens to {base}",
            spec=spec,
            subject_type="model" if preview else "version",
            subject_id=subject,
            idempotency_key=idempotency_key,
        )
        if job.subject_id != subject:  # the same request, sent at the same time, came first
            transaction.set_rollback(True)
        elif version is not None:
            services.version_making(version=version)
    return job


def _check(
    base: Version, terms: list[str], corpus: Corpus | None, candidates: int, dtype: str, skip_unneeded: bool
) -> None:
    if base.state != VersionState.READY:
        raise Conflict(
            f"{base} is {base.state}; tokens are added to a version that is ready.", code="version_not_ready"
        )
    if base.shape.get("task", "generate") != "generate":
        raise TursiopsError(f"{base} makes vectors or scores; domain tokens are for models that generate.")
    if not terms and not candidates:
        raise _refuse("terms", "Give terms, or a corpus and how many candidates to look for in it.")
    if candidates and corpus is None:
        raise _refuse("corpus", "Candidates are looked for in a corpus: give one.")
    if len(terms) + candidates > door.MAX_TERMS:
        raise _refuse("terms", f"At most {door.MAX_TERMS:,} terms, candidates included.")
    bad = {} if skip_unneeded else door.problems(terms)
    if bad:
        named = [f"terms[{place}] ({terms[place][:40]!r}) {why}." for place, why in sorted(bad.items())]
        more = [f"And {len(named) - _NAMED} more."] if len(named) > _NAMED else []
        raise TursiopsError(
            f"terms: {named[0]}", hint="Take these out, or correct them.", fields={"terms": [*named[:_NAMED], *more]}
        )
    if dtype != "auto" and base.format != "gguf":
        raise _refuse("dtype", "Only of a GGUF version; the files of this one keep their types.")


def _refuse(field: str, reason: str) -> TursiopsError:
    return TursiopsError(f"{field}: {reason}", fields={field: [reason]})


def run(run: JobRun) -> Outcome:
    spec = run.job.spec
    base = Version.objects.select_related("model").filter(pk=spec["base"]).first()
    if base is None:
        raise ChildError("version_gone", "the version that tokens were to be added to was deleted", "Choose another.")
    engine = registry.engine(ENGINE)
    if not isinstance(engine, AddsTokens):
        raise ChildError("not_supported", f"the engine {ENGINE} of this installation can't add tokens")
    blobs = {file.name: file.blob for file in base.files.select_related("blob")}
    staging = "" if spec["preview"] else str(store.local().incoming(str(run.job.subject_id)) / "files")
    found = run.child(
        engine.add_tokens_command(),
        {
            "paths": imports.linked(blobs, run.workdir / "base"),
            "format": base.format,
            "terms": spec["terms"],
            "corpus": _corpus_path(spec),
            "mine": spec["candidates"],
            "min_count": spec["min_count"],
            "skip": spec["skip_unneeded"],
            "dtype": spec["dtype"],
            "staging": staging,
        },
        span=(0.0, 1.0 if spec["preview"] else _GROW_SHARE),
    ).data
    about = {
        "base": {"version": str(base.pk), "label": str(base)},
        **{name: spec[name] for name in ("preview", "corpus", "dtype")},
        **found,
    }
    about["reason"] = sentence(found)
    if spec["preview"]:
        return Outcome(about)
    files = {name: blobs[name] for name in found["kept"]} | imports.taken_in(run, found, Path(staging))
    shutil.rmtree(Path(staging).parent, ignore_errors=True)
    paths = imports.linked(files, run.workdir / "files")
    facts = run.child(
        engine.inspect_command(), {"paths": paths, "format": found["format"]}, span=(_GROW_SHARE, 1.0)
    ).data
    return Outcome(
        {
            **about,
            "version": str(run.job.subject_id),
            "files": [{"name": name, "sha256": blob.sha256, "size": blob.size} for name, blob in files.items()],
            "revision": "",
            "license": base.license,
            "facts": facts,
        }
    )


def sentence(found: dict[str, Any]) -> str:
    """What came of it, in one line."""
    added = found["vocabulary"]["after"] - found["vocabulary"]["before"]
    text = f"{found['terms_total']:,} terms, {added:,} new tokens."
    saving = found["saving"]
    if saving is None:
        return text
    share = 100 * (1 - saving["after"] / max(saving["before"], 1))
    return f"{text} The corpus takes {saving['after']:,} tokens in place of {saving['before']:,}: {share:.1f} % less."


def _corpus_path(spec: dict[str, Any]) -> str:
    if not spec["corpus"]:
        return ""
    corpus = Corpus.objects.filter(pk=uuid.UUID(spec["corpus"])).first()
    if corpus is None:
        raise ChildError("corpus_gone", "the corpus was deleted", "Upload it again.")
    return str(store.path_of(corpus.blob_id))


def on_state(job: Job) -> None:
    """The version follows its job, in the transaction of each change of the job's state; a preview has none."""
    if job.subject_type != "version":
        return
    version = Version.objects.select_related("model__team").filter(pk=job.subject_id).first()
    if version is None or version.state == VersionState.READY:
        return
    if job.state in (JobState.QUEUED, JobState.RUNNING):
        services.version_making(version=version)
    elif job.state in (JobState.ERRORED, JobState.CANCELLED, JobState.REJECTED):
        services.version_not_made(version=version, reason=job.reason or f"The job was {job.state}.")
    elif job.state == JobState.SUCCEEDED:
        services.version_ready(version=version, report=job.report)
        _link(version, job)


def _link(version: Version, job: Job) -> None:
    """The edge to the base, with what was measured. A base that was deleted meanwhile leaves none."""
    base = Version.objects.filter(pk=job.spec["base"]).first()
    if base is None:
        return
    report = job.report
    changes = {
        "vocabulary": {**_change(report["vocabulary"]), "unit": "tokens"},
        "size": {"before": base.size_bytes, "after": version.size_bytes, "unit": "bytes"},
    }
    if report["saving"] is not None:
        changes["corpus"] = {**_change(report["saving"]), "unit": "tokens"}
    LineageEdge.objects.create(kind=LineageKind.EXTENDED_FROM, parent=base, child=version, job=job, changes=changes)


def _change(about: dict[str, Any]) -> dict[str, int]:
    return {"before": about["before"], "after": about["after"]}


def kind() -> JobKind:
    return JobKind(
        name=KIND,
        label="Add domain tokens",
        run=run,
        on_state=on_state,
        spec_schema={
            "type": "object",
            "properties": {
                "base": {"type": "string"},
                "terms": {"type": "array", "items": {"type": "string"}, "maxItems": door.MAX_TERMS},
                "corpus": {"type": "string"},
                "candidates": {"type": "integer", "minimum": 0, "maximum": MAX_CANDIDATES},
                "min_count": {"type": "integer", "minimum": 1},
                "skip_unneeded": {"type": "boolean"},
                "dtype": {"enum": list(DTYPES)},
                "preview": {"type": "boolean"},
            },
            "required": ["base", "terms", "corpus", "candidates", "min_count", "skip_unneeded", "dtype", "preview"],
            "additionalProperties": False,
        },
    )
