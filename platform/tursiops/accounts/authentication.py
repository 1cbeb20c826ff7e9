"""API keys open the control plane's REST API as well as /v1, with the rights of the person who made them. One with a
limit (models, rates, streams) is meant for an application, and opens /v1 alone: else it could lift its own limit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from tursiops.accounts.models import ApiKey
from tursiops.secrets import hash_api_key

_USE_WRITTEN_EVERY = timedelta(minutes=1)


class ApiKeyAuthentication(authentication.BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[Any, ApiKey] | None:
        header = authentication.get_authorization_header(request).decode("latin-1")
        scheme, _, secret = header.partition(" ")
        if scheme.lower() != "bearer" or not secret:
            return None
        now = timezone.now()
        live = Q(expires_at__isnull=True) | Q(expires_at__gt=now)
        key = (
            ApiKey.objects.filter(
                live, sha256=hash_api_key(secret.strip()), revoked_at__isnull=True, created_by__is_active=True
            )
            .select_related("created_by", "team")
            .first()
        )
        if key is None:
            raise exceptions.AuthenticationFailed("This API key is unknown, expired or revoked.")
        if key.limited:
            raise exceptions.PermissionDenied(
                "This API key has limits: it opens /v1 only. Use one without, or sign in."
            )
        if key.last_used_at is None or now - key.last_used_at > _USE_WRITTEN_EVERY:
            ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)
        request._request.team = key.team  # type: ignore[attr-defined] # as the middleware sets it
        return key.created_by, key

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
