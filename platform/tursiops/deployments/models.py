"""Deployment (the served name) → Revision (immutable) → Instance (one engine process)."""

from __future__ import annotations

from django.db import models

from tursiops.core.models import PublicModel, TeamOwned


class Desired(models.TextChoices):
    RUNNING = "running"
    STOPPED = "stopped"
    DELETED = "deleted"


class Deployment(TeamOwned):
    name = models.CharField(max_length=100)  # what clients send as `model`
    description = models.TextField(blank=True)
    desired = models.CharField(max_length=10, choices=Desired.choices, default=Desired.RUNNING)
    replicas = models.JSONField(default=dict)  # {role: count}, e.g. {"unified": 1}
    current = models.ForeignKey("Revision", on_delete=models.PROTECT, null=True, related_name="+")
    created_by = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "name"], condition=~models.Q(desired="deleted"), name="deployment_name_in_team"
            )
        ]

    def __str__(self) -> str:
        return self.name


class Revision(PublicModel):
    """What runs. Never changed: an edit makes the next number, a rollback points `current` back."""

    team_path = "deployment__team"

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    version = models.ForeignKey("registry.Version", on_delete=models.PROTECT, related_name="revisions")
    draft_version = models.ForeignKey(  # guesses tokens for `version`; options.speculation says how
        "registry.Version", on_delete=models.PROTECT, null=True, related_name="draft_revisions"
    )
    engine = models.CharField(max_length=50, default="native")
    topology = models.JSONField(default=dict)  # {role: {"gpus": 0, …}}
    device = models.CharField(max_length=10, default="auto")
    dtype = models.CharField(max_length=16, default="auto")
    max_model_len = models.PositiveIntegerField(default=0)  # tokens; 0 = the model's own
    max_num_seqs = models.PositiveIntegerField(default=0)  # 0 = the engine's default
    kv_cache_bytes = models.BigIntegerField(default=0)  # 0 = the engine decides
    node_name = models.CharField(max_length=100, blank=True)  # pin to a node; empty = anywhere
    gpu_indices = models.JSONField(default=list)
    options = models.JSONField(default=dict)
    created_by = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["deployment", "number"], name="revision_number")]


class InstanceState(models.TextChoices):
    PENDING = "pending"
    SCHEDULED = "scheduled"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    UNREACHABLE = "unreachable"
    FAILED = "failed"


class Instance(PublicModel):
    """One engine process. The controller writes `desired` and the placement; the node writes what it observes."""

    team_path = "deployment__team"

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="instances")
    revision = models.ForeignKey(Revision, on_delete=models.CASCADE, related_name="instances")
    role = models.CharField(max_length=10, default="unified")
    index = models.PositiveIntegerField()  # place within role; freed places are taken again
    desired = models.CharField(max_length=10, choices=Desired.choices, default=Desired.RUNNING)
    state = models.CharField(max_length=16, choices=InstanceState.choices, default=InstanceState.PENDING)
    reason = models.CharField(max_length=500, blank=True)
    node = models.ForeignKey("fleet.Node", on_delete=models.PROTECT, null=True, related_name="instances")
    gpu_indices = models.JSONField(default=list)
    placement = models.JSONField(default=dict)  # {"chosen": …, "rejected": [{"node", "reason"}]}
    epoch = models.PositiveIntegerField(default=0)  # rises with each start
    address = models.CharField(max_length=255, blank=True)
    port = models.PositiveIntegerField(default=0)
    token_encrypted = models.CharField(max_length=500, blank=True)
    pid = models.PositiveIntegerField(default=0)
    pid_start_time = models.FloatField(default=0)
    progress = models.FloatField(default=0)
    facts = models.JSONField(default=dict)  # as effective: dtype, device, kv blocks, …
    restarts = models.PositiveIntegerField(default=0)
    next_start_at = models.DateTimeField(null=True)
    ready_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["role", "index"]
        constraints = [  # a second controller that believes to lead can't make the same instance again
            models.UniqueConstraint(fields=["deployment", "role", "index"], name="instance_place_once")
        ]
