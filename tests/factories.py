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
from tursiops.fleet.models import Node
from tursiops.jobs.models import Job
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
