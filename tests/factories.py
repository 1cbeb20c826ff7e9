"""Rows for tests, with only what a test cares about given. Names are unique within a process.

Each function makes and returns one saved row; what it needs (team, model, …) is made too where not given.
"""

from __future__ import annotations

import hashlib
import itertools
import uuid
from typing import Any

from django.utils import timezone
from tursiops.accounts.models import ApiKey, Membership, Role, Team, User
from tursiops.core.models import Blob, BlobReplica
from tursiops.deployments.models import Deployment, Instance, Revision
from tursiops.evaluations.models import (
    Baseline,
    ExternalEndpoint,
    Gate,
    Plan,
    Run,
    RunState,
    Schedule,
    Suite,
    SuiteVersion,
    Verdict,
)
from tursiops.fleet.models import Node
from tursiops.jobs.models import Job
from tursiops.quantization.models import Quantization
from tursiops.registry.models import Alias, Corpus, Model, SourceKind, Version, VersionFile, VersionState
from tursiops.usage.models import UsageRecord

_numbers = itertools.count(1)
PASSWORD = "correct horse battery"

SMOLLM2_SHAPE = {
    "architecture": "llama",
    "layers": 30,
    "hidden": 576,
    "ffn": 1536,
    "heads": 9,
    "kv_heads": 3,
    "head_dim": 64,
    "vocab": 49152,
    "context_length": 8192,
    "parameters": 134_515_008,
    "tied_embeddings": True,
    "sliding_window": 0,
    "kv_values": 11_520,
}


def uuid_of_nothing() -> uuid.UUID:
    """An id that no row has."""
    return uuid.uuid4()


def unique(stem: str) -> str:
    return f"{stem}-{next(_numbers)}"


def make_team(name: str = "") -> Team:
    return Team.objects.create(name=name or unique("team"))


def make_user(team: Team | None = None, role: str = Role.MEMBER, username: str = "", **fields: Any) -> User:
    """A person with PASSWORD; a member of `team` in `role` where a team is given."""
    user = User.objects.create_user(username or unique("user"), password=PASSWORD, **fields)
    if team is not None:
        Membership.objects.create(team=team, user=user, role=role)
    return user


def make_api_key(team: Team | None = None, created_by: User | None = None, **fields: Any) -> ApiKey:
    """The key's secret is left on the row as `.secret` (not stored)."""
    team = team or make_team()
    secret = fields.pop("secret", "") or f"ts-{unique('secret')}".ljust(46, "x")
    key = ApiKey.objects.create(
        team=team,
        created_by=created_by or make_user(team),
        **{
            "name": unique("key"),
            "prefix": secret[:9],
            "sha256": hashlib.sha256(secret.encode()).hexdigest(),
            **fields,
        },
    )
    key.secret = secret  # type: ignore[attr-defined] # for the test's requests
    return key


def make_blob(content: bytes = b"", node_name: str = "") -> Blob:
    """A blob's rows alone; use `core.store` where its bytes must exist."""
    content = content or unique("bytes").encode()
    blob, _ = Blob.objects.get_or_create(
        sha256=hashlib.sha256(content).hexdigest(), defaults={"size": len(content) or 1}
    )
    if node_name:
        BlobReplica.objects.get_or_create(blob=blob, node_name=node_name)
    return blob


def make_model(team: Team | None = None, **fields: Any) -> Model:
    return Model.objects.create(team=team or make_team(), **{"name": unique("model"), **fields})


def make_version(
    model: Model | None = None, *, team: Team | None = None, files: dict[str, Blob] | None = None, **fields: Any
) -> Version:
    """A ready version of one GGUF file, shaped like SmolLM2-135M unless told otherwise."""
    model = model or make_model(team)
    last = model.versions.order_by("-number").first()
    defaults: dict[str, Any] = {
        "number": (last.number if last else 0) + 1,
        "state": VersionState.READY,
        "source_kind": SourceKind.PATH,
        "source_ref": "/models/tiny.gguf",
        "format": "gguf",
        "architecture": "llama",
        "dtype": "float32",
        "quantization": "Q4_1",
        "license": "Apache-2.0",
        "size_bytes": 98_000_000,
        "shape": SMOLLM2_SHAPE,
        "tokenizer": {"kind": "bpe", "vocab_size": 49152, "pre": "smollm", "bos": 1, "eos": 2},
    }
    version = Version.objects.create(model=model, **{**defaults, **fields})
    for name, blob in (files if files is not None else {"tiny.gguf": make_blob()}).items():
        VersionFile.objects.create(version=version, name=name, blob=blob)
    return version


def make_alias(version: Version | None = None, name: str = "champion") -> Alias:
    version = version or make_version()
    return Alias.objects.create(model=version.model, version=version, name=name)


def make_corpus(team: Team | None = None, **fields: Any) -> Corpus:
    """Its row alone, as of `make_blob`."""
    defaults: dict[str, Any] = {"name": unique("corpus"), "blob": make_blob(), "lines": 3}
    return Corpus.objects.create(team=team or make_team(), **{**defaults, **fields})


def make_job(team: Team | None = None, **fields: Any) -> Job:
    return Job.objects.create(
        team=team or make_team(), **{"kind": "registry.import", "title": unique("Import model"), **fields}
    )


def make_quantization(team: Team | None = None, *, base: Version | None = None, **fields: Any) -> Quantization:
    """Its row, and the version that it made, whose job has ended."""
    base = base or make_version(team=team)
    version = make_version(base.model, format="safetensors", quantization="compressed-tensors")
    job = make_job(
        base.model.team, kind="quantization.make", state="succeeded", subject_type="version", subject_id=version.pk
    )
    defaults: dict[str, Any] = {
        "version": version,
        "job": job,
        "optimizer": "quantization",
        "scheme": "fp8_dynamic",
        "scheme_label": "FP8 W8A8, dynamic",
        "recipe": {"scheme": "fp8_dynamic"},
        "calibration": {"source": "builtin", "corpus": "", "samples": 128, "tokens": 512},
        "gate": {"perplexity_ratio": 1.03},
        "device": "cpu",
    }
    return Quantization.objects.create(base=base, **{**defaults, **fields})


def make_node(**fields: Any) -> Node:
    """A node that is alive now, with 8 CPUs and 24 GB free of 32."""
    defaults: dict[str, Any] = {
        "name": unique("node"),
        "heartbeat_at": timezone.now(),
        "reachable_at": timezone.now(),
        "cpu_count": 8,
        "memory_total": 32_000_000_000,
        "memory_available": 24_000_000_000,
        "disk_free": 100_000_000_000,
    }
    return Node.objects.create(**{**defaults, **fields})


def make_deployment(
    team: Team | None = None, *, version: Version | None = None, revision: dict[str, Any] | None = None, **fields: Any
) -> Deployment:
    """A running deployment of one unified replica with revision 1 current. It has no instance yet."""
    team = team or (version.model.team if version else make_team())
    deployment = Deployment.objects.create(
        team=team, **{"name": unique("served"), "replicas": {"unified": 1}, **fields}
    )
    deployment.current = make_revision(deployment, version=version, **(revision or {}))
    deployment.save()
    return deployment


def make_revision(deployment: Deployment, *, version: Version | None = None, **fields: Any) -> Revision:
    last = deployment.revisions.order_by("-number").first()
    return Revision.objects.create(
        deployment=deployment,
        version=version or make_version(team=deployment.team),
        **{"number": (last.number if last else 0) + 1, **fields},
    )


def make_instance(deployment: Deployment | None = None, **fields: Any) -> Instance:
    deployment = deployment or make_deployment()
    return Instance.objects.create(
        deployment=deployment,
        **{"revision": deployment.current, "index": deployment.instances.count(), **fields},
    )


def make_usage(team: Team | None = None, **fields: Any) -> UsageRecord:
    defaults: dict[str, Any] = {
        "request_id": unique("request"),
        "served_name": "smollm2",
        "path": "/v1/chat/completions",
        "status": 200,
        "started_at": timezone.now(),
        "prompt_tokens": 10,
        "completion_tokens": 20,
        "duration_ms": 500.0,
    }
    return UsageRecord.objects.create(team=team or make_team(), **{**defaults, **fields})


LOAD = {"dataset": {"kind": "synthetic"}, "load": {"kind": "rate", "rate": 2.0}}
"""The load part of a suite's spec."""


def make_suite(team: Team | None = None, *, spec: dict[str, Any] | None = None, **fields: Any) -> Suite:
    suite = Suite.objects.create(team=team or make_team(), **{"name": unique("suite"), **fields})
    parts = {"load": LOAD, "quality": None, "profile": None}
    suite.current = SuiteVersion.objects.create(suite=suite, number=1, spec={**parts, **(spec or {})})
    suite.save()
    return suite


def make_suite_version(suite: Suite) -> SuiteVersion:
    """The suite's next version, which becomes its current one."""
    version = SuiteVersion.objects.create(suite=suite, number=suite.versions.count() + 1, spec=suite.current.spec)
    suite.current = version
    suite.save()
    return version


def make_endpoint(team: Team | None = None, **fields: Any) -> ExternalEndpoint:
    defaults = {"name": unique("endpoint"), "url": "https://api.example.com", "model": "some-model"}
    return ExternalEndpoint.objects.create(team=team or make_team(), **{**defaults, **fields})


def make_run(suite: Suite | None = None, *, team: Team | None = None, **fields: Any) -> Run:
    """A run that came to its end and passed, on a deployment of its team unless a target is given."""
    suite = suite or make_suite(team)
    if "deployment" not in fields and "endpoint" not in fields:
        fields["deployment"] = make_deployment(suite.team)
    target = fields.get("deployment") or fields.get("endpoint")
    if fields.get("deployment") is not None:
        fields = {"version": fields["deployment"].current.version, "revision_number": 1, **fields}
    defaults = {
        "state": RunState.COMPLETED,
        "verdict": Verdict.PASS,
        "finished_at": timezone.now(),
        "target_kind": "endpoint" if fields.get("endpoint") else "deployment",
        "target_name": str(target),
        "requested_by": None,
    }
    return Run.objects.create(team=suite.team, suite=suite, suite_version=suite.current, **{**defaults, **fields})


def make_baseline(run: Run | None = None, *, team: Team | None = None, **fields: Any) -> Baseline:
    run = run or make_run(team=team)
    return Baseline.objects.create(
        team=run.team, suite=run.suite, deployment=run.deployment, endpoint=run.endpoint, run=run, **fields
    )


def make_schedule(suite: Suite | None = None, *, team: Team | None = None, **fields: Any) -> Schedule:
    """Every night at two. celery-beat knows nothing of it; `schedules.create_schedule` tells it."""
    suite = suite or make_suite(team)
    if "deployment" not in fields and "endpoint" not in fields:
        fields["deployment"] = make_deployment(suite.team)
    return Schedule.objects.create(
        team=suite.team, suite=suite, **{"name": unique("schedule"), "cron": "0 2 * * *", **fields}
    )


def make_gate(suite: Suite | None = None, *, team: Team | None = None, **fields: Any) -> Gate:
    suite = suite or make_suite(team)
    if fields.get("kind", "alias") == "alias" and "model" not in fields:
        fields["model"] = make_model(suite.team)
    return Gate.objects.create(team=suite.team, suite=suite, **{"name": unique("gate"), "kind": "alias", **fields})


def make_plan(team: Team | None = None, **fields: Any) -> Plan:
    return Plan.objects.create(team=team or make_team(), **{"request": {}, "answer": {}, **fields})
