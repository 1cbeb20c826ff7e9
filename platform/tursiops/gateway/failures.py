"""What went wrong with one attempt on one instance: whether another may be asked, and what the client would read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tursiops.gateway.engine_client import EngineError, Unreachable
from tursiops.gateway.errors import GatewayError

_EXCERPT = 300
_TIMEOUTS = ("queue_timeout", "first_token_timeout", "total_timeout")
"""Of a time that the request itself set, or the engine's operator: it is over, wherever it would be tried again."""


class Failure(Exception):
    """`kind` is a short fixed word (a metric's label). `passed` is the engine's own error, for the client as it is."""

    def __init__(
        self,
        kind: str,
        status: int,
        message: str,
        *,
        retry: bool = True,
        blames_instance: bool = True,
        passed: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.retry = retry
        self.blames_instance = blames_instance
        self.passed = passed
        self.retry_after = retry_after

    def as_error(self) -> GatewayError:
        if self.passed is not None:
            return PassedError(self.status, self.passed, self.retry_after)
        return GatewayError(
            self.status, f"upstream_{self.kind}", f"The model did not answer: {self}.", retry_after=self.retry_after
        )


class PassedError(GatewayError):
    """An engine's error in OpenAI's shape, given to the client unchanged."""

    def __init__(self, status: int, error: dict[str, Any], retry_after: float | None) -> None:
        super().__init__(
            status,
            str(error.get("code") or error.get("type") or "upstream_error"),
            str(error.get("message", "")),
            param=error.get("param") if isinstance(error.get("param"), str) else None,
            retry_after=retry_after,
        )
        self._error = error

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": "server_error", "param": None, "code": None} | self._error}


def interpret(status: int, body: bytes, headers: Mapping[str, str]) -> Failure:
    """An engine's answer of 300 or above."""
    error = _error_of(body)
    after = headers.get("Retry-After", "")
    wait = float(after) if after.isdigit() else None
    said = (error or {}).get("message") or body[:_EXCERPT].decode("utf-8", "replace").strip() or "no message"
    if status in (401, 403):
        # Its token is not ours: the process behind this address is another one than the snapshot says.
        return Failure("refused", 503, "the engine refused the gateway's token", retry_after=2)
    if status in (429, 503):
        full = status == 503  # 429: it has room, but not for this team
        return Failure(
            "busy", status, f"the engine said {said}", passed=error, retry_after=wait or 2, blames_instance=full
        )
    if status == 504 and (error or {}).get("code") in _TIMEOUTS:
        return Failure("timeout", 504, str(said), retry=False, blames_instance=False, passed=error)
    if status >= 500 or status < 400:  # nobody is redirected: the token is for this engine alone
        return Failure("status", 502, f"the engine answered {status}: {said}", passed=error)
    return Failure(
        "rejected", status, str(said), retry=False, blames_instance=False, passed=error or {"message": str(said)}
    )


def of_event(error: dict[str, Any]) -> Failure:
    """A stream that answered 200 and began with an error."""
    code = error.get("status") or error.get("code")
    status = code if isinstance(code, int) and 400 <= code <= 599 else 0
    if error.get("type") == "invalid_request_error" or (400 <= status < 500 and status != 429):
        return Failure("rejected", status or 400, str(error), retry=False, blames_instance=False, passed=error)
    return Failure("first_event", status or 502, f"the engine failed: {error.get('message', error)}", passed=error)


def of_exception(error: EngineError) -> Failure:
    """A connection that could not be made or broke before the answer began."""
    if isinstance(error, Unreachable):
        return Failure("unreachable", 503, "its engine could not be reached", retry_after=5)
    return Failure("connection", 502, f"the connection to its engine broke ({error})", retry_after=2)


def _error_of(body: bytes) -> dict[str, Any] | None:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    error = content.get("error") if isinstance(content, dict) else None
    return error if isinstance(error, dict) else None
