"""How errors leave the web process: the one shape of `core.errors`, whatever raised.

Apart from `core.errors`, so that processes without views do not pay for DRF at their start.
"""

from __future__ import annotations

import errno
from typing import Any

import structlog
from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.exceptions import ValidationError as DjangoValidationError
from django.db import InterfaceError, OperationalError
from django.db.models import ProtectedError
from django.http import Http404, HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.views import csrf, defaults
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler as drf_handler

from tursiops.core.errors import TursiopsError, body
from tursiops.core.filestore import StoreError

log = structlog.get_logger(__name__)
_FULL = ("database or disk is full", "No space left on device")  # SQLite, and PostgreSQL's DiskFull


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    if isinstance(error, TursiopsError):
        shown = body(error.code, error.message, error.hint, error.fields)
        return Response(shown, status=error.status, headers=error.headers)
    if isinstance(error, ProtectedError):
        users = ", ".join(sorted({str(item) for item in error.protected_objects})[:5])
        return Response(body("in_use", f"Still in use by {users}.", "Remove what uses it first."), status=409)
    if isinstance(error, RequestDataTooBig):
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        return Response(
            body("too_large", f"The body is larger than {limit:,} bytes.", "Send less at once."), status=413
        )
    if isinstance(error, OperationalError | InterfaceError | OSError | StoreError) and (told := _told(error)):
        log.error("web.cannot_store", error=str(error))
        return Response(told, status=503, headers={"Retry-After": "10"})
    if isinstance(error, DjangoValidationError):
        error = exceptions.ValidationError(error.message_dict if hasattr(error, "error_dict") else error.messages)
    response = drf_handler(error, context)
    if response is None:
        return None
    if isinstance(error, exceptions.ValidationError):
        fields = response.data if isinstance(response.data, dict) else {"non_field_errors": response.data}
        first = _first(fields)
        response.data = body("invalid", first, "Correct the fields named and send it again.", fields)
    else:
        code = (
            "not_found"
            if isinstance(error, Http404)
            else "permission_denied"
            if isinstance(error, PermissionDenied)
            else getattr(error, "default_code", "error")
        )
        detail = response.data.get("detail", "") if isinstance(response.data, dict) else str(response.data)
        response.data = body(str(code), str(detail))
    return response


def _told(error: Exception) -> dict[str, Any] | None:
    """What people read where nothing can be stored; None for another error."""
    full = any(said in str(error) for said in _FULL) or getattr(error, "errno", None) == errno.ENOSPC
    if full or getattr(error, "code", "") == "disk_full":
        hint = "Free some space on it, and send it again. Models keep answering under /v1."
        return body("disk_full", "The disk of the platform's data is full, so nothing can be changed.", hint)
    if isinstance(error, OperationalError | InterfaceError) and "no such" not in str(
        error
    ):  # SQLite's of a wrong query
        hint = "Try again in a few seconds. Models keep answering under /v1."
        return body("database_away", "The database does not answer.", hint)
    return None


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Django's handler500: what raised outside of a view of the API, too, answers in the API's shape."""
    if not request.path.startswith("/api/"):
        return defaults.server_error(request)
    hint = "Try again. If it stays, the log of the web process says why."
    return JsonResponse(body("internal", "The platform failed to answer.", hint), status=500)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """Django's CSRF_FAILURE_VIEW: the API answers in its own shape."""
    if not request.path.startswith("/api/"):
        return csrf.csrf_failure(request, reason)
    hint = "Send the value of the cookie csrftoken as the header X-CSRFToken; GET /api/v1/auth/session sets it."
    return JsonResponse(body("csrf", reason or "CSRF check failed.", hint), status=403)


def _first(fields: dict[str, Any]) -> str:
    for name, messages in fields.items():
        text = messages
        while isinstance(text, list | dict) and text:
            text = next(iter(text.values())) if isinstance(text, dict) else text[0]
        return f"{name}: {text}" if name != "non_field_errors" else str(text)
    return "Invalid input."
