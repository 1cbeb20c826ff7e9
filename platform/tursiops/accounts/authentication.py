"""API keys open the control plane's REST API as well as /v1, with the rights of the person who made them."""

from __future__ import annotations

import hashlib
from typing import Any

from django.db.models import Q
from django.utils import timezone
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from tursiops.accounts.models import ApiKey


class ApiKeyAuthentication(authentication.BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[Any, ApiKey] | None:
        header = authentication.get_authorization_header(request).decode("latin-1")
        scheme, _, secret = header.partition(" ")
        if scheme.lower() != "bearer" or not secret:
            return None
        digest = hashlib.sha256(secret.strip().encode()).hexdigest()
        live = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
        key = (
            ApiKey.objects.filter(live, sha256=digest, revoked_at__isnull=True, created_by__is_active=True)
            .select_related("created_by", "team")
            .first()
        )
        if key is None:
            raise exceptions.AuthenticationFailed("This API key is unknown, expired or revoked.")
        request._request.team = key.team
        return key.created_by, key

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
