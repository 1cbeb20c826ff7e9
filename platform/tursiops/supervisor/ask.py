"""One question to a deployment through the gateway, as any client would ask it; and the curl line for people."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

QUESTION = "What is the capital of France?"
MAX_TOKENS = 80


@dataclass
class Answer:
    text: str
    first_token_s: float
    tokens_per_s: float


def status_of(host: str, port: int, path: str, timeout: float = 2.0) -> int:
    """HTTP status of a GET, or 0 while nobody answers."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def reachable(host: str) -> str:
    """Where a process of this machine finds a server that binds `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def answers(host: str, port: int, model: str, bearer: str) -> int:
    """HTTP status of a request for one token, or 0."""
    connection = http.client.HTTPConnection(host, port, timeout=60)
    headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"}
    try:
        connection.request(
            "POST", "/v1/chat/completions", json.dumps({**body(model), "stream": False, "max_tokens": 1}), headers
        )
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def ask(host: str, port: int, model: str, key: str) -> Iterator[str | Answer]:
    """Pieces of the streamed answer as they come, then the Answer. Raises ValueError with the server's own words."""
    connection = http.client.HTTPConnection(host, port, timeout=120)
    began = time.monotonic()
    first, pieces = 0.0, []
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body(model)), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"status {response.status}: {response.read(2000).decode('utf-8', 'replace')}")
        for piece in _deltas(response):
            first = first or time.monotonic()
            pieces.append(piece)
            yield piece
    except (OSError, http.client.HTTPException) as error:
        raise ValueError(f"the connection broke: {error!r}") from None
    finally:
        connection.close()
    if not pieces:
        raise ValueError("the answer was empty")
    rate = (len(pieces) - 1) / max(time.monotonic() - first, 1e-6)
    yield Answer("".join(pieces), first - began, rate)


def _deltas(lines: http.client.HTTPResponse) -> Iterator[str]:
    for line in lines:
        if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise ValueError(event["error"]["message"])
        for choice in event.get("choices", []):
            if text := choice.get("delta", {}).get("content"):
                yield text


def body(model: str) -> dict[str, object]:
    message = {"role": "user", "content": QUESTION}
    return {"model": model, "stream": True, "temperature": 0, "max_tokens": MAX_TOKENS, "messages": [message]}


def curl(url: str, model: str, key: str) -> str:
    """One line to paste into a shell."""
    text = json.dumps(body(model))
    return (
        f'curl -N {url}/v1/chat/completions -H "Authorization: Bearer {key}" '
        f"-H 'Content-Type: application/json' -d '{text}'"
    )
