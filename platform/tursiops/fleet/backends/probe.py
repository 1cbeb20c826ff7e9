"""Two questions to an engine over HTTP: are you well, and do you know the token of this start?"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Health:
    ok: bool
    reason: str


def health(host: str, port: int, timeout: float = 3.0) -> Health:
    status, body = _get(host, port, "/health", "", timeout)
    if status == 200:
        return Health(True, "")
    if status is None:
        return Health(False, body)
    try:
        told = json.loads(body)
        reason = str(told.get("reason") or told.get("status") or "")
    except (ValueError, AttributeError):
        reason = ""
    return Health(False, reason or f"/health answers {status}")


def proves_token(host: str, port: int, token: str, timeout: float = 3.0) -> bool:
    """True if a request with the token is served and one without is refused: only our engine can tell them apart."""
    with_token, _ = _get(host, port, "/v1/models", token, timeout)
    return with_token == 200 and _get(host, port, "/v1/models", "", timeout)[0] == 401


def _get(host: str, port: int, path: str, token: str, timeout: float) -> tuple[int | None, str]:
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        return response.status, response.read(64 * 1024).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return None, f"no answer on port {port} ({type(error).__name__})"
    finally:
        connection.close()
