"""One endpoint, asked for whole answers: what is safe to repeat is repeated, and every failure has a code and a fix.

The load generator has a client of its own (evaluation/client): here the answers matter, not their times.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from evaluation.schema import Endpoint

TRIES = 4
RETRIED = (408, 429, 500, 502, 503, 504)
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 30.0


class EndpointError(Exception):
    """`code` is stable; `fatal`: the next item would meet the same, so the task stops here."""

    def __init__(self, code: str, message: str, hint: str = "", *, fatal: bool = False) -> None:
        super().__init__(f"{code}: {message}" + (f". {hint}" if hint else ""))
        self.code = code
        self.message = message
        self.hint = hint
        self.fatal = fatal


@dataclass(frozen=True, slots=True)
class Answer:
    """token_ids: of the answer, where the endpoint tells them (`return_token_ids`)."""

    text: str
    finish_reason: str
    completion_tokens: int | None
    token_ids: list[int] | None = field(default=None)


class Connection:
    """`async with Connection(endpoint, concurrency) as asked`. Requests beyond `concurrency` wait for their turn."""

    def __init__(self, endpoint: Endpoint, concurrency: int) -> None:
        self.endpoint = endpoint
        self.url = endpoint.url.rstrip("/").removesuffix("/v1")
        self.model = endpoint.model
        self._turns = asyncio.Semaphore(concurrency)
        self._session: aiohttp.ClientSession | None = None
        self._loaded: Any = None  # the tokenizer of a file

    async def __aenter__(self) -> Connection:
        headers = {}
        if name := self.endpoint.api_key_env:
            key = os.environ.get(name)
            if not key:
                raise EndpointError("no_key", f"the variable {name} is not set", f"export {name}=…", fatal=True)
            headers["Authorization"] = f"Bearer {key}"
        timeout = aiohttp.ClientTimeout(total=self.endpoint.timeout_s)
        self._session = aiohttp.ClientSession(headers=headers, timeout=timeout, trust_env=False)
        try:
            if not self.model:
                self.model = await self._only_model()
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def _only_model(self) -> str:
        listed = await self.request("GET", "/v1/models")
        names = [str(each.get("id")) for each in listed.get("data", []) if isinstance(each, dict)]
        if len(names) != 1:
            told = f"it has {len(names)}: {', '.join(names[:5])}" if names else "it has none"
            raise EndpointError("no_model", f"endpoint.model is empty and {told}", "Name the model", fatal=True)
        return names[0]

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self.request("POST", path, {"model": self.model, **self.endpoint.extra_body, **body})

    async def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object of a 200. Raises EndpointError."""
        async with self._turns:
            for turn in range(TRIES):
                last = turn == TRIES - 1
                try:
                    found = await self._once(method, path, body, last)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    if last or isinstance(error, TimeoutError):  # once more would cost the server as much again
                        raise self._down(error) from error
                    found = FIRST_WAIT_S * 2**turn
                if isinstance(found, dict):
                    return found
                await asyncio.sleep(found)
        raise AssertionError("the last try returns or raises")

    async def _once(self, method: str, path: str, body: dict[str, Any] | None, last: bool) -> dict[str, Any] | float:
        """The answer, or the seconds to wait before the next try."""
        assert self._session is not None
        # A redirect is not followed: it would take the key, and this machine's place in the network, elsewhere.
        async with self._session.request(method, self.url + path, json=body, allow_redirects=False) as response:
            if response.status in RETRIED and not last:
                wait = response.headers.get("Retry-After", "")
                return min(float(wait), LONGEST_WAIT_S) if wait.isdigit() else FIRST_WAIT_S
            if 300 <= response.status < 400:
                told = f"{method} {path} of {self.url}: {response.status}, a redirect"
                raise EndpointError("endpoint_refused", told, "Give the final address in endpoint.url", fatal=True)
            if response.status != 200:
                said = (await response.text(errors="replace"))[:500]
                fatal = response.status in (401, 403, 404) or response.status >= 500
                code = "endpoint_failed" if response.status >= 500 else "endpoint_refused"
                raise EndpointError(code, f"{method} {path} of {self.url}: {response.status} {said}", fatal=fatal)
            try:
                found = await response.json(content_type=None)
            except ValueError as error:
                raise EndpointError("bad_answer", f"{path} of {self.url} is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise EndpointError("bad_answer", f"{path} of {self.url} is no JSON object")
        return found

    def _down(self, error: BaseException) -> EndpointError:
        if isinstance(error, TimeoutError):
            told = f"{self.url} gave no answer within {self.endpoint.timeout_s:g} s"
            return EndpointError("endpoint_timeout", told, "Raise endpoint.timeout_s, or ask for fewer tokens")
        told = f"{self.url} does not answer: {type(error).__name__}: {error}"
        return EndpointError("endpoint_down", told, "Start it, or mend endpoint.url; then --resume", fatal=True)

    async def answer(self, messages: list[dict[str, Any]], **body: Any) -> Answer:
        """By endpoint.api: a chat, or the text of the messages as a plain prompt."""
        if self.endpoint.api == "chat":
            found = await self.post("/v1/chat/completions", {"messages": messages, **body})
        else:
            prompt = "\n\n".join(str(each["content"]) for each in messages)
            found = await self.post("/v1/completions", {"prompt": prompt, **body})
        try:
            choice = found["choices"][0]
            text = choice["message"]["content"] if self.endpoint.api == "chat" else choice["text"]
        except (KeyError, IndexError, TypeError) as error:
            raise EndpointError(
                "bad_answer", f"the answer of {self.url} has no choices[0]: {str(found)[:200]}"
            ) from error
        usage = found.get("usage") or {}
        ids = choice.get("token_ids")
        return Answer(
            str(text or ""),
            str(choice.get("finish_reason") or ""),
            usage.get("completion_tokens"),
            list(ids) if isinstance(ids, list) else None,
        )

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text. special: with the model's BOS. By `endpoint.tokenizer` where that names a file; else an
        engine answers /tokenize, our gateway /v1/tokenize."""
        if self.endpoint.tokenizer:
            ids: list[int] = self._from_file().encode(text, add_special_tokens=special).ids
            return ids
        body = {"model": self.model, "prompt": text, "add_special_tokens": special}
        found: dict[str, Any] = {}
        for path in ("/tokenize", "/v1/tokenize"):
            try:
                found = await self.request("POST", path, body)
                break
            except EndpointError as error:
                if error.code != "endpoint_refused":
                    raise
        tokens = found.get("tokens")
        if not isinstance(tokens, list):
            told, hint = f"{self.url} has no /tokenize that gives a list `tokens`", "Name a tokenizer.json"
            raise EndpointError("no_tokenizer", told, f"{hint} in endpoint.tokenizer", fatal=True)
        return [int(each) for each in tokens]

    def _from_file(self) -> Any:
        """A `tokenizer.json`, or the folder that has one."""
        if self._loaded is None:
            from tokenizers import Tokenizer

            path = Path(self.endpoint.tokenizer).expanduser()
            path = path / "tokenizer.json" if path.is_dir() else path
            try:
                self._loaded = Tokenizer.from_file(str(path))
            except Exception as error:  # the library raises Exception itself
                told = f"{path} can't be read: {error}"
                raise EndpointError("no_tokenizer", told, "Mend endpoint.tokenizer", fatal=True) from error
        return self._loaded
