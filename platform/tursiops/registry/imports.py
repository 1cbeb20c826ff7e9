"""The job kind `registry.import`: fetch the files, look into them, and make the version ready, or say why not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from engines.protocol import ChildError
from tursiops.core import registry, store
from tursiops.core.models import Blob
from tursiops.jobs.kinds import JobKind
from tursiops.jobs.models import Job, JobState
from tursiops.jobs.run import JobRun, Outcome
from tursiops.registry import services, sources
from tursiops.registry.models import Version, VersionState

KIND = "registry.import"
FETCH_SHARE = 0.95  # of the progress bar; reading headers takes seconds, fetching takes minutes


def run(run: JobRun) -> Outcome:
    version = Version.objects.select_related("model").filter(pk=run.job.subject_id).first()
    if version is None:
        raise ChildError("version_gone", "the version was deleted", "Import it again.")
    source = registry.model_sources.get(run.job.spec["source"])
    spec = sources.child_spec(run.job.spec, key=str(version.pk))
    fetched = run.child(source.command(), spec, span=(0.0, FETCH_SHARE)).data
    files = taken_in(run, fetched, Path(spec["staging"]))
    shutil.rmtree(spec["staging"], ignore_errors=True)
    twin = _same_content(version, files)
    if twin is not None:
        reason = f"These files are registered already, as {twin}."
        return Outcome({"version": str(twin.pk), "already_registered": True, "reason": reason})
    format = fetched.get("format") or _format(files)
    run.log.write("reading headers")
    paths = linked(files, run.workdir / "files")
    command = registry.engine("native").inspect_command()
    facts = run.child(command, {"paths": paths, "format": format}, span=(FETCH_SHARE, 1.0)).data
    found = {name: fetched.get(name) or "" for name in ("revision", "license")}
    return Outcome(
        {
            "version": str(version.pk),
            "files": [{"name": name, "sha256": blob.sha256, "size": blob.size} for name, blob in files.items()],
            "format": format,
            "revision": found["revision"],
            "license": found["license"] or facts.get("license") or "",
            "facts": facts,
        }
    )


def taken_in(run: JobRun, fetched: dict[str, Any], staging: Path) -> dict[str, Blob]:
    """Rows for what the child fetched: it is in the store already, or (a plugin's) in the staging folder."""
    files = {}
    for item in fetched.get("files", []):
        name = str(item["name"])
        if "/" in name or name in ("", ".", ".."):
            raise ChildError("bad_name", f"the source reports a file named {name!r}")
        staged = staging / name
        if staged.is_file() and not staged.is_symlink():
            # Hashing a large file takes longer than a lease lives.
            files[name] = store.put_file(staged, sha256=str(item["sha256"]), progress=lambda done: run.look_after())
        else:
            files[name] = store.register(str(item["sha256"]), int(item["size"]))
    if not files:
        raise ChildError("no_weights", "the source brought no file")
    return files


def _same_content(version: Version, files: dict[str, Blob]) -> Version | None:
    """A ready version of the same model with the very same files."""
    wanted = {(name, blob.sha256) for name, blob in files.items()}
    ready = version.model.versions.filter(state=VersionState.READY).prefetch_related("files").select_related("model")
    other: Version
    for other in ready:
        if {(item.name, item.blob_id) for item in other.files.all()} == wanted:
            return other
    return None


def linked(files: dict[str, Blob], folder: Path) -> dict[str, str]:
    """Links with the files' own names, so that a refusal names the file and not its digest."""
    folder.mkdir()
    for name, blob in files.items():
        (folder / name).symlink_to(store.path_of(blob.sha256))
    return {name: str(folder / name) for name in files}


def _format(files: dict[str, Blob]) -> str:
    return "gguf" if any(name.endswith(".gguf") for name in files) else "safetensors"


def on_state(job: Job) -> None:
    """The version follows its job, in the transaction of each change of the job's state."""
    version = Version.objects.select_related("model__team").filter(pk=job.subject_id).first()
    if version is None or version.state == VersionState.READY:
        return
    if job.state in (JobState.QUEUED, JobState.RUNNING):
        services.version_importing(version=version)
    elif job.state in (JobState.ERRORED, JobState.CANCELLED, JobState.REJECTED):
        services.version_failed(version=version, reason=job.reason or f"The import was {job.state}.")
    elif job.state == JobState.SUCCEEDED:
        if job.report.get("already_registered"):
            services.placeholder_dropped(version=version, job=job)
        else:
            services.version_ready(version=version, report=job.report)


def kind() -> JobKind:
    return JobKind(
        name=KIND,
        label="Import a model",
        run=run,
        on_state=on_state,
        spec_schema={
            "type": "object",
            "properties": {
                "source": {"type": "string"},
                "ref": {"type": "string"},
                "revision": {"type": "string"},
            },
            "required": ["source", "ref"],
            "additionalProperties": False,
        },
    )
