"""What clients send to the playground, checked before anything runs."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tursiops.core.inputs import meant

MAX_BYTES = 512 * 1024
MAX_LANES = 4

Id = Annotated[str, Meta(pattern=r"^[0-9A-Za-z-]{1,64}$")]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]  # what the engine's JSON can carry
Lane = Annotated[str, Meta(pattern=r"^[0-9a-z_-]{1,16}$")]


class Refused(Exception):
    """Input that starts nothing: becomes an `error` frame with number 0, or a 400."""

    def __init__(self, code: str, message: str, hint: str = "", status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status


class Message(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Meta(max_length=200_000)]


class Params(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Sampling parameters. Ranges are the engine's to check, which knows its own."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: Int64 | None = None
    min_p: float | None = None
    max_tokens: Int64 | None = None
    seed: Int64 | None = None
    stop: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=8)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None


class Start(msgspec.Struct, tag="start", forbid_unknown_fields=True):
    chat: Id
    lane: Lane
    model: Annotated[str, Meta(min_length=1, max_length=100)]
    messages: Annotated[list[Message], Meta(min_length=1, max_length=400)]
    params: Params = msgspec.field(default_factory=Params)
    sources: bool = False  # who guessed each piece of the text

    def body(self) -> dict[str, Any]:
        """The request to the gateway."""
        return {
            "model": self.model,
            "messages": msgspec.to_builtins(self.messages),
            **msgspec.to_builtins(self.params),
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"return_draft_sources": True} if self.sources else {}),
        }


class Stop(msgspec.Struct, tag="stop", forbid_unknown_fields=True):
    chat: Id
    lane: Lane


class Resume(msgspec.Struct, tag="resume", forbid_unknown_fields=True):
    chat: Id
    lane: Lane
    after: Annotated[int, Meta(ge=0, le=10**9)] = 0


_FIELDS = [name for part in (Start, Resume, Message, Params) for name in part.__struct_fields__]
_decoder = msgspec.json.Decoder(Start | Stop | Resume)


def parse(data: str | bytes) -> Start | Stop | Resume:
    """A message of the websocket. Raises Refused naming the field."""
    _check_size(data)
    try:
        message: Start | Stop | Resume = _decoder.decode(data)
        return message
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _refused(error) from None


def parse_start(data: bytes) -> Start:
    """The body of the SSE form; `type` may be left out. Raises Refused."""
    _check_size(data)
    try:
        fields = msgspec.json.decode(data)
        if isinstance(fields, dict):
            fields.setdefault("type", "start")
        return msgspec.convert(fields, Start)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _refused(error) from None


def parse_place(fields: dict[str, Any]) -> Resume:
    """`chat`, `lane`, `after` of a query string. Raises Refused."""
    try:
        return msgspec.convert({"type": "resume", **fields}, Resume, strict=False)
    except msgspec.ValidationError as error:
        raise _refused(error) from None


def _check_size(data: str | bytes) -> None:
    if len(data) > MAX_BYTES:
        raise Refused("too_large", f"The message is over {MAX_BYTES // 1024} KiB.", "Start a new chat.", 413)


def _refused(error: Exception) -> Refused:
    if isinstance(error, RecursionError):
        return Refused("invalid", "The message is nested too deeply.")
    where = re.search(r" - at `\$\.?(.*)`$", str(error))
    unknown = re.search(r"unknown field `(.*?)`", str(error))
    hint = f"Did you mean {close}?" if unknown and (close := meant(unknown.group(1), _FIELDS)) else ""
    text = re.sub(r" - at `.*`$", "", str(error)).replace("`", "")
    return Refused("invalid", f"{where.group(1)}: {text}" if where and where.group(1) else text, hint)
