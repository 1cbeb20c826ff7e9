"""Counting a prompt's tokens as the server does: by its own /tokenize, by a tokenizer file, else by an estimate."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import msgspec
from msgspec import Struct

from evaluation.client.http import Client, RequestError
from evaluation.client.target import Target
from evaluation.schema import Endpoint
from evaluation.workload.errors import DatasetError
from evaluation.workload.item import Turn

AT_ONCE = 16  # calls of /tokenize under way


class Tokenizer(Protocol):
    verified: bool  # the ids are those of the served model's tokenizer
    template: bool  # a chat's ids hold its template
    source: str  # "endpoint", "file" or "estimate": stands in the result

    async def ids(self, turn: Turn) -> list[int]:
        """Of a request that begins with this turn."""

    async def close(self) -> None: ...


class _Tokens(Struct):
    tokens: list[int]


class EndpointTokenizer:
    """POST /tokenize in vLLM's shape, which our engine has, too."""

    verified = template = True
    source = "endpoint"

    def __init__(self, client: Client, path: str) -> None:
        self._client, self._path = client, path
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def ids(self, turn: Turn) -> list[int]:
        """Raises RequestError, also for an answer that holds no tokens."""
        if isinstance(turn.prompt, list):
            return turn.prompt
        target = self._client.target
        body: dict[str, Any] = {"model": target.endpoint.model}
        if target.chat:
            body |= {"messages": turn.messages, "add_generation_prompt": True}
        else:
            body |= {"prompt": turn.prompt}
        async with self._slots:
            answer = await self._client.request("POST", self._path, msgspec.json.encode(body))
        try:
            return msgspec.json.decode(answer, type=_Tokens).tokens
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RequestError(f"bad_answer: {self._path} gave no list `tokens`: {error}") from error

    async def close(self) -> None:
        await self._client.close()


class FileTokenizer:
    """A `tokenizer.json`, and the chat template beside it where there is one (rendered in jinja's sandbox)."""

    verified = True
    source = "file"

    def __init__(self, path: Path, chat: bool) -> None:
        """Raises DatasetError."""
        from tokenizers import Tokenizer as Loaded

        file = path / "tokenizer.json" if path.is_dir() else path
        try:
            self._loaded = Loaded.from_file(str(file))
        except Exception as error:  # the library raises Exception itself
            raise DatasetError(str(file), f"no tokenizer can be read: {error}", "Name a folder or a tokenizer.json",
                               field="endpoint.tokenizer") from error  # fmt: skip
        self._chat = chat
        self._template = _template(file.parent) if chat else None
        self.template = not chat or self._template is not None

    async def ids(self, turn: Turn) -> list[int]:
        if isinstance(turn.prompt, list):
            return turn.prompt
        if not self._chat:
            return list(self._loaded.encode(turn.prompt or "").ids)
        if self._template is None:
            return list(self._loaded.encode("\n".join(_text(turn.messages))).ids)
        written = self._template.render(messages=turn.messages, add_generation_prompt=True)
        return list(self._loaded.encode(written, add_special_tokens=False).ids)

    async def close(self) -> None:
        return


class EstimatedTokens:
    """Nothing knows the tokenizer: a token per four bytes, as English has in most. Declared as unverified."""

    verified = template = False
    source = "estimate"

    async def ids(self, turn: Turn) -> list[int]:
        if isinstance(turn.prompt, list):
            return turn.prompt
        data = (turn.prompt or "\n".join(_text(turn.messages))).encode()
        return [crc32(data[place : place + 4]) for place in range(0, len(data), 4)]

    async def close(self) -> None:
        return


async def tokenizer_for(endpoint: Endpoint, api_key: str = "") -> Tokenizer:
    """The best there is. Raises EndpointError for a URL that is none, DatasetError for a tokenizer that can't be read.

    An endpoint that is down or has no /tokenize leaves the estimate: `verified` says so.
    """
    if endpoint.tokenizer:
        return FileTokenizer(Path(endpoint.tokenizer).expanduser(), endpoint.api == "chat")
    target = Target(endpoint, api_key)
    await target.look_up()
    client = Client(target)
    for path in ("/tokenize", "/v1/tokenize"):  # an engine's own, a gateway's
        found = EndpointTokenizer(client, path)
        try:
            if await found.ids(Turn(messages=[{"role": "user", "content": "one"}], prompt="one")):
                return found
        except RequestError:
            continue
    await client.close()
    return EstimatedTokens()


def _text(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] if isinstance(message.get("content"), str) else str(message) for message in messages]


def _template(folder: Path) -> Any:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    settings: dict[str, Any] = {}
    if (folder / "tokenizer_config.json").is_file():
        settings = msgspec.json.decode((folder / "tokenizer_config.json").read_bytes())
    file = folder / "chat_template.jinja"
    source = file.read_text() if file.is_file() else settings.get("chat_template")
    if not isinstance(source, str):
        return None
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals |= {
        name: token if isinstance(token, str) else token.get("content", "")
        for name in ("bos_token", "eos_token", "pad_token", "unk_token")
        if (token := settings.get(name)) is not None
    }
    return environment.from_string(source)
