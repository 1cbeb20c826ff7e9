"""A door on this machine that lm-eval asks in the endpoint's place. It forwards with our connection's key, retries and
`extra_body`, so that no key is in lm-eval's process, its answers are counted as they come, and an endpoint that fails
is known at once. An engine answers /tokenize and /tokenizer_info, a gateway perhaps only /v1/tokenize.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from evaluation.quality.endpoint import Connection, EndpointError

LARGEST = 256 * 2**20  # bytes of a request


class Proxy:
    """`async with Proxy(connection, told) as proxy`; lm-eval's base_url is `proxy.url` + /v1/completions. told: called
    after each answer with the number of prompts so far."""

    def __init__(self, asked: Connection, told: Callable[[int], None]) -> None:
        self._asked = asked
        self._told = told
        self.answered = 0
        self.failure: EndpointError | None = None
        self.url = ""

    async def __aenter__(self) -> Proxy:
        app = web.Application(client_max_size=LARGEST)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/tokenize", self._tokenizing)
        app.router.add_post("/detokenize", self._tokenizing)
        app.router.add_get("/tokenizer_info", self._info)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        try:
            found = await self._asked.post(request.path, {**body, "model": self._asked.model})
        except EndpointError as error:
            return self._failed(error)
        self.answered += len(found.get("choices", []))
        self._told(self.answered)
        return web.json_response(found)

    async def _tokenizing(self, request: web.Request) -> web.Response:
        return await self._either("POST", request.path, {**await request.json(), "model": self._asked.model})

    async def _info(self, request: web.Request) -> web.Response:
        if folder := self._asked.endpoint.tokenizer:
            return web.json_response(tokenizer_info(Path(folder)))
        return await self._either("GET", "/tokenizer_info", None)

    async def _either(self, method: str, path: str, body: dict[str, Any] | None) -> web.Response:
        try:
            try:
                found = await self._asked.request(method, path, body)
            except EndpointError as error:
                if error.code != "endpoint_refused":
                    raise
                found = await self._asked.request(method, f"/v1{path}", body)
        except EndpointError as error:
            return self._failed(self._no_tokenizer(path) if path == "/tokenizer_info" else error)
        return web.json_response(found)

    def _no_tokenizer(self, path: str) -> EndpointError:
        hint = "Name the engine's own address, or in endpoint.tokenizer a folder with tokenizer_config.json"
        return EndpointError("no_tokenizer", f"{self._asked.url} has no {path}", hint, fatal=True)

    def _failed(self, error: EndpointError) -> web.Response:
        self.failure = error
        return web.json_response({"error": {"message": str(error)}}, status=502)


def tokenizer_info(folder: Path) -> dict[str, Any]:
    """What /tokenizer_info would say, of a model's folder as the hub holds it. Raises EndpointError."""
    path = (folder.parent if folder.is_file() else folder) / "tokenizer_config.json"
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EndpointError("no_tokenizer", f"{path} can't be read: {error}", "Mend endpoint.tokenizer") from error
    tokens = {name: told.get(name) for name in ("bos_token", "eos_token", "pad_token")}
    plain = {name: value.get("content") if isinstance(value, dict) else value for name, value in tokens.items()}
    return plain | {"chat_template": told.get("chat_template"), "add_bos_token": told.get("add_bos_token")}
