"""Bases that every app's rows share, the outbox of events, and the catalogue of stored files."""

from __future__ import annotations

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models

from tursiops.core.ids import uuid7
from tursiops.core.permissions import RestrictedQuerySet


class PublicModel(models.Model):
    """A row with a UUIDv7 as its key, and the times of its making and last change."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = RestrictedQuerySet.as_manager()

    class Meta:
        abstract = True


class TeamOwned(PublicModel):
    """A row that belongs to one team. `restrict()` is the way to read such rows for a user."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")

    class Meta:
        abstract = True


class EventCounter(models.Model):
    """The last event number of a team. Locked while an event is written, so that numbers are commit-ordered."""

    team = models.OneToOneField("accounts.Team", on_delete=models.CASCADE, primary_key=True, related_name="+")
    last = models.BigIntegerField(default=0)


class Event(models.Model):
    """A change, written in the transaction that makes it. `sequence` rises without gaps within a team."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    sequence = models.BigIntegerField()
    kind = models.CharField(max_length=64)  # e.g. "deployment.scaled"
    subject_type = models.CharField(max_length=32)  # e.g. "deployment"
    subject_id = models.UUIDField()
    text = models.CharField(max_length=500)  # one sentence for people
    payload = models.JSONField(default=dict, encoder=DjangoJSONEncoder)  # the subject as its list row shows it
    actor = models.CharField(max_length=150, blank=True)  # user name, "controller", "node:<name>"
    created_at = models.DateTimeField(auto_now_add=True)

    objects = RestrictedQuerySet.as_manager()

    class Meta:
        ordering = ["sequence"]
        constraints = [models.UniqueConstraint(fields=["team", "sequence"], name="event_team_sequence")]
        indexes = [models.Index(fields=["team", "subject_type", "subject_id", "sequence"])]


class Blob(models.Model):
    """Bytes known by their digest. Where they lie is told by replicas; no row holds a path."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    size = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)


class BlobReplica(models.Model):
    """One copy of a blob in one node's file store."""

    blob = models.ForeignKey(Blob, on_delete=models.CASCADE, related_name="replicas")
    node_name = models.CharField(max_length=100)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["blob", "node_name"], name="replica_once_per_node")]
