"""The demo model is imported, deployed and ready.

What people have made themselves is left alone: once the team has deployments of its own, nothing is added.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from engines.api import Channel, ChildError
from tursiops.supervisor import ask

if TYPE_CHECKING:
    from tursiops.accounts.models import Team
    from tursiops.core.audit import Actor
    from tursiops.deployments.models import Deployment
    from tursiops.fleet.models import Node
    from tursiops.registry.models import Version

NAME = "smollm2"
KEY_NAME = "first start"
NODE_LIMIT_S, IMPORT_LIMIT_S, READY_LIMIT_S, ANSWER_LIMIT_S = 60.0, 900.0, 300.0, 60.0


def serve_demo(channel: Channel, device: str, began: datetime) -> dict[str, Any]:
    """{} where there is nothing to show; else the deployment's name, and the secret of a key made just now.

    `began`: when this start of the platform did.
    """
    from tursiops.accounts.models import Team, User
    from tursiops.core.audit import Actor
    from tursiops.deployments.models import Deployment, Desired
    from tursiops.secrets import sign_internal

    team = Team.objects.order_by("created_at").first()
    admin = User.objects.filter(is_superuser=True, is_active=True).order_by("date_joined").first()
    if team is None or admin is None:
        raise ChildError("no_admin", "there is no admin", "Run `manage.py ensure_admin`.")
    actor = Actor(admin.get_username(), admin)
    alive = Deployment.objects.filter(team=team).exclude(desired=Desired.DELETED)
    deployment = alive.filter(name=NAME).first()
    if deployment is None and alive.exists():
        return {}
    if deployment is None:
        version = ready_version(channel, team, actor)
        deployment = deploy(channel, team, actor, version, device)
    if deployment.desired == Desired.STOPPED or not sum(deployment.replicas.values()):
        return {}
    wait_ready(channel, deployment, began)
    key = first_key(team, actor)
    wait_answer(channel, key or sign_internal(str(team.pk), str(admin.pk)))
    return {"deployment": NAME, "key": key}


def ready_version(channel: Channel, team: Team, actor: Actor) -> Version:
    from tursiops.registry.models import SourceKind, Version, VersionState
    from tursiops.registry.services import import_model

    mine = Version.objects.filter(model__team=team, source_kind=SourceKind.DEMO)
    version: Version | None = mine.filter(state=VersionState.READY).first()
    if version is None:
        channel.progress(0.0, "importing the model")
        job = import_model(team=team, actor=actor, source="demo")
        wait_imported(channel, job.pk)
        version = mine.filter(state=VersionState.READY).first()
    if version is None:
        raise ChildError("import_failed", "the import ended without a version", "See Jobs in the console.")
    return version


def wait_imported(channel: Channel, job_id: Any) -> None:
    from tursiops.jobs.models import ENDED, Job, JobState

    end = time.monotonic() + IMPORT_LIMIT_S
    while True:
        job = Job.objects.get(pk=job_id)
        if job.state in ENDED:
            break
        channel.progress(job.progress / 2, f"importing, {job.progress:.0%} {job.progress_text or job.state}")
        if time.monotonic() > end:
            raise ChildError("slow", f"the import is {job.state} after {IMPORT_LIMIT_S:.0f} s", "See the job's log.")
        time.sleep(0.2)
    if job.state != JobState.SUCCEEDED:
        raise ChildError("import_failed", f"the import is {job.state}: {job.reason}", job.error.get("hint", ""))


def deploy(channel: Channel, team: Team, actor: Actor, version: Version, device: str) -> Deployment:
    from tursiops.deployments.services import deployment_create

    node = wait_node(channel)
    has_gpu = node.gpus.exists()
    if device == "cuda" and not has_gpu:
        hint = "See `nvidia-smi`, and whether torch is a CUDA build; or start with --cpu."
        raise ChildError("no_gpu", "--gpu was given, and this machine shows no GPU", hint)
    gpu = has_gpu and device != "cpu"
    return deployment_create(
        team=team,
        actor=actor,
        name=NAME,
        description="Demo: SmolLM2-135M-Instruct" + ("" if gpu else ", with dynamic int8 on the CPU"),
        version=version,
        replicas={"unified": 1},
        device="cuda" if gpu else "cpu",
        dtype="auto" if gpu else "int8",  # the fast way on a CPU; bfloat16 is the slow one there
    )


def wait_node(channel: Channel) -> Node:
    """This machine's node, once it has told what it has."""
    from django.conf import settings

    from tursiops.fleet.models import Node

    end = time.monotonic() + NODE_LIMIT_S
    while True:
        node: Node | None = Node.objects.filter(name=settings.NODE_NAME, memory_total__gt=0).first()
        if node is not None:
            return node
        if time.monotonic() > end:
            raise ChildError("no_node", f"the node process is silent for {NODE_LIMIT_S:.0f} s", "See node.log.")
        channel.progress(0.5, "waiting for the node's first report")
        time.sleep(0.2)


def wait_ready(channel: Channel, deployment: Deployment, began: datetime) -> None:
    """Only what a node has seen since `began` counts: after a hard stop the rows still tell of the last run."""
    from tursiops.deployments.derive import DeploymentState
    from tursiops.deployments.rows import derived_state

    end = time.monotonic() + READY_LIMIT_S
    while True:
        instances = list(deployment.instances.all())
        derived = derived_state(deployment, instances)
        fresh = all(instance.seen_at and instance.seen_at >= began for instance in instances)
        if fresh and derived.state == DeploymentState.READY:
            return
        if fresh and derived.state == DeploymentState.FAILED:
            raise ChildError("failed", f"{deployment.name} failed: {derived.reason}", "See engine.log of its instance.")
        if time.monotonic() > end:
            why = f"{deployment.name} is {derived.state} after {READY_LIMIT_S:.0f} s. {derived.reason}"
            raise ChildError("slow", why, "See Deployments in the console.")
        loading = max((instance.progress for instance in instances), default=0.0)
        states = ", ".join(str(instance.state) for instance in instances) or "waiting for the controller"
        channel.progress(0.5 + loading / 2, f"{deployment.name}: {states}, loaded {loading:.0%}")
        time.sleep(0.2)


def wait_answer(channel: Channel, bearer: str) -> None:
    """One token through the gateway: its routes and keys have arrived."""
    from django.conf import settings

    end = time.monotonic() + ANSWER_LIMIT_S
    while (status := ask.answers(ask.reachable(settings.GATEWAY_HOST), settings.GATEWAY_PORT, NAME, bearer)) != 200:
        if time.monotonic() > end:
            why = f"the gateway answers {status or 'nothing'} for {NAME} after {ANSWER_LIMIT_S:.0f} s"
            raise ChildError("no_answer", why, "See gateway.log and controller.log.")
        channel.progress(0.99, f"{NAME}: waiting for the gateway's route")
        time.sleep(0.3)


def first_key(team: Team, actor: Actor) -> str | None:
    """The secret of a new key where the team has none yet: it can't be shown again."""
    from tursiops.accounts.models import ApiKey
    from tursiops.accounts.services import create_api_key

    if ApiKey.objects.filter(team=team).exists():
        return None
    return create_api_key(team=team, actor=actor, name=KEY_NAME)[1]
