from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers

from tursiops.accounts.models import ApiKey, AuditEntry, Role, User
from tursiops.core.inputs import Input

LANGUAGES = [("", "the browser's"), *settings.LANGUAGES]


class TeamRoleSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)


class SessionUserSerializer(serializers.ModelSerializer[User]):
    is_admin = serializers.BooleanField(source="is_superuser", help_text="Admin of the whole installation")
    language = serializers.ChoiceField(choices=LANGUAGES)

    class Meta:
        model = User
        fields = ["id", "username", "email", "is_admin", "language", "theme"]


class SessionSerializer(serializers.Serializer[Any]):
    user = SessionUserSerializer()
    team = TeamRoleSerializer(allow_null=True)
    teams = TeamRoleSerializer(many=True)
    version = serializers.CharField(help_text="Version of this release")


class LoginInput(Input):
    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=1000, trim_whitespace=False, write_only=True)


class PasswordInput(Input):
    current = serializers.CharField(max_length=1000, trim_whitespace=False, write_only=True)
    new = serializers.CharField(max_length=1000, trim_whitespace=False, write_only=True)


class TeamInput(Input):
    team = serializers.UUIDField()


class PreferencesInput(Input):
    language = serializers.ChoiceField(choices=LANGUAGES, required=False, allow_blank=True)
    theme = serializers.ChoiceField(choices=["system", "light", "dark"], required=False)


class ApiKeySerializer(serializers.ModelSerializer[ApiKey]):
    created_by = serializers.CharField(source="created_by.username", default=None, allow_null=True, read_only=True)
    allowed_models = serializers.ListField(child=serializers.CharField(), help_text="Served names; empty: all")

    class Meta:
        model = ApiKey
        fields = [
            "id",
            "name",
            "prefix",
            "allowed_models",
            "requests_per_minute",
            "tokens_per_minute",
            "max_parallel",
            "traffic_consent",
            "expires_at",
            "revoked_at",
            "last_used_at",
            "created_at",
            "created_by",
        ]
        read_only_fields = fields


class NewApiKeySerializer(ApiKeySerializer):
    secret = serializers.CharField(read_only=True, help_text="Shown this once")

    class Meta(ApiKeySerializer.Meta):
        fields = [*ApiKeySerializer.Meta.fields, "secret"]
        read_only_fields = fields


class ApiKeyInput(Input):
    name = serializers.CharField(max_length=100)
    allowed_models = serializers.ListField(child=serializers.CharField(max_length=100), required=False, max_length=100)
    requests_per_minute = serializers.IntegerField(min_value=1, max_value=10**9, required=False, allow_null=True)
    tokens_per_minute = serializers.IntegerField(min_value=1, max_value=2**31 - 1, required=False, allow_null=True)
    max_parallel = serializers.IntegerField(min_value=1, max_value=100_000, required=False, allow_null=True)
    traffic_consent = serializers.BooleanField(
        default=False, help_text="Prompts sent with it may be kept, masked, for 30 days, as the team's calibration data"
    )
    expires_at = serializers.DateTimeField(required=False, allow_null=True)


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    changes = serializers.DictField()

    class Meta:
        model = AuditEntry
        fields = ["id", "actor", "action", "subject_type", "subject_id", "changes", "address", "created_at"]
        read_only_fields = fields
