"""What was used, one row per request, unique by request id so that a replay of the stream adds nothing."""

from __future__ import annotations

from django.db import models

from tursiops.core.models import TeamOwned


class UsageRecord(TeamOwned):
    request_id = models.CharField(max_length=64, unique=True)
    api_key_id = models.UUIDField(null=True)
    user_id = models.UUIDField(null=True)  # playground requests
    deployment_id = models.UUIDField(null=True)
    instance_id = models.UUIDField(null=True)
    served_name = models.CharField(max_length=100)
    path = models.CharField(max_length=50)
    status = models.PositiveIntegerField()
    finish_reason = models.CharField(max_length=16, blank=True)
    error_code = models.CharField(max_length=64, blank=True)
    prompt_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(db_index=True)
    queue_ms = models.FloatField(null=True)
    ttft_ms = models.FloatField(null=True)
    duration_ms = models.FloatField(default=0)
    retries = models.PositiveIntegerField(default=0)
    disconnected = models.BooleanField(default=False)
