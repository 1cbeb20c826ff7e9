"""People, teams, and the keys that applications carry."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser, UserManager
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models

from tursiops.core.ids import uuid7
from tursiops.core.models import PublicModel, TeamOwned


class User(AbstractUser):
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    language = models.CharField(max_length=10, default="", blank=True)  # empty: the browser's
    theme = models.CharField(
        max_length=10, default="system", choices=[("system", "system"), ("light", "light"), ("dark", "dark")]
    )

    objects = UserManager()  # type: ignore[misc] # the stubs declare a ClassVar


class Role(models.TextChoices):
    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"


class Team(PublicModel):
    name = models.CharField(max_length=100, unique=True)

    team_path = "pk"

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.MEMBER)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="membership_once")]


class ApiKey(TeamOwned):
    """A key of 256 random bits, kept as its SHA-256; shown once. `prefix` is what people recognise it by."""

    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16)
    sha256 = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    allowed_models = models.JSONField(default=list, blank=True)  # served names; empty: all of the team
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True)
    tokens_per_minute = models.PositiveIntegerField(null=True, blank=True)
    max_parallel = models.PositiveIntegerField(null=True, blank=True)
    traffic_consent = models.BooleanField(default=False)  # prompts may be kept, masked, as calibration data
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    @property
    def limited(self) -> bool:
        """Whether it may do less on /v1 than its team."""
        return bool(self.allowed_models or self.requests_per_minute or self.tokens_per_minute or self.max_parallel)


class AuditEntry(TeamOwned):
    """Who did what to what, with the values before and after. Never changed, never deleted by the product."""

    actor = models.CharField(max_length=150)
    action = models.CharField(max_length=64)
    subject_type = models.CharField(max_length=32)
    subject_id = models.UUIDField()
    changes = models.JSONField(default=dict, encoder=DjangoJSONEncoder)
    address = models.GenericIPAddressField(null=True)
