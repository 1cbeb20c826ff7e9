from __future__ import annotations

from typing import Any

from rest_framework import serializers

from tursiops.core.inputs import Input
from tursiops.jobs.models import Job


class JobErrorSerializer(serializers.Serializer[Any]):
    code = serializers.CharField(required=False)
    message = serializers.CharField(required=False)
    hint = serializers.CharField(required=False)


class JobSerializer(serializers.ModelSerializer[Job]):
    requested_by = serializers.CharField(source="requested_by.username", default=None, allow_null=True, read_only=True)
    report = serializers.DictField(read_only=True)
    error = JobErrorSerializer(read_only=True)

    class Meta:
        model = Job
        fields = [
            "id",
            "kind",
            "title",
            "state",
            "reason",
            "progress",
            "progress_text",
            "attempt",
            "max_attempts",
            "subject_type",
            "subject_id",
            "requested_by",
            "node_name",
            "created_at",
            "started_at",
            "finished_at",
            "report",
            "error",
        ]
        read_only_fields = fields


class LogPageSerializer(serializers.Serializer[Any]):
    text = serializers.CharField()
    next = serializers.IntegerField(help_text="Byte offset to ask for next")
    ended = serializers.BooleanField(help_text="Nothing will come after `next`")


class LogQuerySerializer(Input):
    after = serializers.IntegerField(min_value=0, default=0, help_text="Byte offset to read from")
