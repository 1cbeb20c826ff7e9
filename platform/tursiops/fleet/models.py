"""The machines that run engines and jobs. Nodes belong to the installation, not to a team."""

from __future__ import annotations

from django.db import models

from tursiops.core.models import PublicModel


class Node(PublicModel):
    name = models.CharField(max_length=100, unique=True)
    address = models.CharField(max_length=255, default="127.0.0.1")
    backend = models.CharField(max_length=16, default="local")
    epoch = models.PositiveIntegerField(default=0)  # rises with each start of the node process
    heartbeat_at = models.DateTimeField(null=True)
    reachable_at = models.DateTimeField(null=True)  # second signal: the controller's own probe
    cordoned = models.BooleanField(default=False)
    draining = models.BooleanField(default=False)
    cpu_count = models.PositiveIntegerField(default=0)
    memory_total = models.BigIntegerField(default=0)  # bytes
    memory_available = models.BigIntegerField(default=0)
    disk_free = models.BigIntegerField(default=0)
    versions = models.JSONField(default=dict)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Gpu(models.Model):
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="gpus")
    index = models.PositiveIntegerField()
    uuid = models.CharField(max_length=64)
    name = models.CharField(max_length=100)
    memory_total = models.BigIntegerField(default=0)
    memory_used = models.BigIntegerField(default=0)
    utilization = models.FloatField(null=True)  # 0…1

    class Meta:
        ordering = ["index"]
        constraints = [models.UniqueConstraint(fields=["node", "index"], name="gpu_index_in_node")]


class ControllerLease(models.Model):
    """One row per elected role; its holder leads until `expires_at`."""

    role = models.CharField(max_length=32, primary_key=True)
    holder = models.CharField(max_length=100)
    expires_at = models.DateTimeField()
