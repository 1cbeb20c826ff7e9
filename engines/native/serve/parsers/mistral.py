"""Mistral's calls: [TOOL_CALLS] [{"name": …, "arguments": …}, …], and since tokenizer v11 [TOOL_CALLS]name{…}, with
[CALL_ID]… and [ARGS] before the arguments from v13 on."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Collection

from engines.native.serve.parsers.calls import CallObject
from engines.native.serve.parsers.json_calls import JsonCalls, Opener
from engines.native.serve.parsers.pieces import Piece

TAG, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_HEAD = re.compile(r"([\w.:/-]+)\s*(?:\[CALL_ID\]\s*[\w-]+\s*)?(?:\[ARGS\]\s*)?(?=\{)")
_HEAD_BEGUN = re.compile(r"[\w.:/-]+\s*(?:\[[A-Z_]*(?:\]\s*[\w-]*\s*(?:\[[A-Z]*\]?)?\s*)?)?")
_LONGEST_HEAD = 512  # characters from the tag to the arguments
_ALPHABET = string.ascii_letters + string.digits


def mistral_call_id() -> str:
    """Mistral's templates refuse any id but nine letters or digits when the call comes back in the conversation."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))


class MistralCalls(JsonCalls):
    def __init__(self, names: Collection[str]) -> None:
        super().__init__((Opener(TAG),), names, mistral_call_id)

    def _inside(self, pieces: list[Piece]) -> bool:
        self._skip_space()
        if not self._buffer:
            return False
        if self._buffer[0] in "{[" or self._listed:
            return super()._inside(pieces)
        head = _HEAD.match(self._buffer)
        if head is None:
            begun = len(self._buffer) <= _LONGEST_HEAD and _HEAD_BEGUN.fullmatch(self._buffer)
            return False if begun else self._no_call(pieces)
        self._raw, self._buffer = self._raw + head.group(), self._buffer[head.end() :]
        self._object = CallObject.named(self._calls, self._call_id, head.group(1))
        self._step = self._in_object
        return True
