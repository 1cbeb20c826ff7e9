"""The job kind `registry.compare`: two versions on one text, layer by layer. The report is what the console shows."""

from __future__ import annotations

from typing import Any

from engines.api import ComparesVersions
from engines.protocol import ChildError
from tursiops.core import registry, store
from tursiops.core.audit import Actor
from tursiops.core.errors import TursiopsError
from tursiops.jobs import services as jobs
from tursiops.jobs.kinds import JobKind
from tursiops.jobs.models import Job
from tursiops.jobs.run import JobRun, Outcome
from tursiops.registry.models import Version, VersionState

KIND = "registry.compare"
ENGINE = "native"
MAX_TEXT = 100_000  # characters; 512 tokens of it count
SAME = ("vocab", "layers", "hidden")


def compare_versions(
    *,
    reference: Version,
    other: Version,
    actor: Actor,
    reference_dtype: str = "float32",
    dtype: str = "auto",
    device: str = "cpu",
    text: str = "",
    idempotency_key: str | None = None,
) -> Job:
    """Start the comparison of `other` with `reference`; the caller has seen that both are of his team.

    Raises TursiopsError naming the field where it can't come to an end.
    """
    for field, version in (("reference", reference), ("other", other)):
        _require_comparable(field, version)
    known = ["auto", *registry.engine(ENGINE).capabilities().dtypes]
    for field, value in (("reference_dtype", reference_dtype), ("dtype", dtype)):
        if value not in known:
            raise _refuse(field, f"dtype {value!r} is not one of {', '.join(known)}.")
    for name in SAME:
        ours, theirs = (version.shape.get(name) for version in (reference, other))
        if ours != theirs:
            raise _refuse(
                "reference",
                f"{reference} has {name} {ours} and {other} has {theirs}: only versions of one shape can be compared.",
            )
    if reference.pk == other.pk and reference_dtype == dtype:
        raise _refuse("reference", "A version in one dtype differs in nothing from itself: choose another, or a dtype.")
    return jobs.enqueue_job(
        team=other.model.team,
        actor=actor,
        kind=KIND,
        title=f"Compare {other} with {reference}",
        spec={
            "reference": {"version": str(reference.pk), "label": str(reference), "dtype": reference_dtype},
            "other": {"version": str(other.pk), "label": str(other), "dtype": dtype},
            "device": device,
            "text": text,
        },
        subject_type="model",  # a version's jobs are those that made it
        subject_id=other.model_id,
        idempotency_key=idempotency_key,
    )


def run(run: JobRun) -> Outcome:
    spec = run.job.spec
    engine = registry.engine(ENGINE)
    if not isinstance(engine, ComparesVersions):
        raise ChildError("no_comparer", f"the engine {ENGINE} of this installation can't compare versions")
    sides = {side: _files(run, side) for side in ("reference", "other")}
    child = {**sides, "device": spec["device"], "text": spec["text"]}
    found = run.child(engine.compare_command(), child).data
    return Outcome({**found, "reference": spec["reference"], "other": spec["other"], "reason": sentence(found)})


def sentence(found: dict[str, Any]) -> str:
    """What a comparison came to, in one line."""
    if found["kl"] is None:
        return "The answers hold values that are no numbers."
    return f"KL {found['kl']:.3g} nats per token, the same likeliest token in {found['same_top']:.1%} of places."


def _files(run: JobRun, side: str) -> dict[str, Any]:
    asked = run.job.spec[side]
    version = Version.objects.filter(pk=asked["version"]).prefetch_related("files").first()
    if version is None:
        raise ChildError("version_gone", f"the version {asked['label']} was deleted", "Choose another version.")
    folder = run.workdir / side
    folder.mkdir(exist_ok=True)
    links = {file.name: folder / file.name for file in version.files.all()}
    for file in version.files.all():  # under their own names, which the loader and its errors go by
        links[file.name].unlink(missing_ok=True)  # of an attempt whose worker was lost
        links[file.name].symlink_to(store.path_of(file.blob_id))
    paths = {name: str(link) for name, link in links.items()}
    return {"format": version.format, "paths": paths, "dtype": asked["dtype"]}


def _require_comparable(field: str, version: Version) -> None:
    if version.state != VersionState.READY:
        raise _refuse(field, f"{version} is {version.state}; only versions that are ready can be compared.")
    if version.shape.get("task", "generate") != "generate":
        raise _refuse(field, f"{version} does not generate text: comparing goes by the next token.")


def _refuse(field: str, message: str) -> TursiopsError:
    return TursiopsError(message, fields={field: [message]})


def kind() -> JobKind:
    side = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("version", "label", "dtype")},
        "required": ["version", "label", "dtype"],
        "additionalProperties": False,
    }
    return JobKind(
        name=KIND,
        label="Compare two versions",
        run=run,
        spec_schema={
            "type": "object",
            "properties": {
                "reference": side,
                "other": side,
                "device": {"enum": ["cpu", "cuda", "auto"]},
                "text": {"type": "string", "maxLength": MAX_TEXT},
            },
            "required": ["reference", "other", "device", "text"],
            "additionalProperties": False,
        },
    )
