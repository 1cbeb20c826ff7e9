"""Calls as a Python list, [get_weather(city="Oslo"), now()]: Llama 3.2 and 4 with tools in the system prompt, ToolACE.

The list is read as literals by Python's own parser and never run. It is held back to its end: a keyword's value can
only be written as JSON when it is complete.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Collection
from typing import Any

from engines.native.serve.parsers.pieces import CallArguments, CallBegin, CallEnd, Content, Piece

_HEAD = re.compile(r"\[\s*([A-Za-z_][\w.]*)\s*\(")
_HEAD_BEGUN = re.compile(r"\[\s*([A-Za-z_][\w.]*\s*)?")
_LONGEST_HEAD = 512  # characters from the bracket to the arguments of the first call
_TOKEN = re.compile(r"""["'\\\[\](){}]""")
_JSON_NAMES = {"true": True, "false": False, "null": None}


class PythonicCalls:
    """A ToolParser. A list that is no list of calls of known tools is content."""

    def __init__(self, names: Collection[str], call_id: Callable[[], str]) -> None:
        self._names, self._call_id = names, call_id
        self._buffer = ""  # from the start of the answer on, while it may be a list of calls
        self._over = False  # all that comes is content
        self._quiet = False  # after calls: nothing but white space came, which is no content
        self._at = 0  # in the buffer: read up to here
        self._depth = 0
        self._quote = ""

    def push(self, text: str) -> list[Piece]:
        if self._over and not self._quiet:
            return [Content(text)] if text else []
        self._buffer += text
        if self._over:
            return self._rest() if self._buffer.strip() else []
        first = self._buffer.lstrip()
        if self._at == 0 and not self._begins(first):
            return self._rest() if self._over else []
        end = self._end()
        if end < 0:
            return []
        calls = self._read(self._buffer[:end].strip())
        if calls is None:
            return self._rest()
        self._over, self._quiet, self._buffer = True, True, self._buffer[end:]
        return [*calls, *(self._rest() if self._buffer.strip() else [])]

    def finish(self) -> list[Piece]:
        return [] if self._quiet and not self._buffer.strip() else self._rest()

    def _rest(self) -> list[Piece]:
        text, self._buffer, self._over, self._quiet = self._buffer, "", True, False
        return [Content(text)] if text else []

    def _begins(self, first: str) -> bool:
        """Whether a list of calls has begun; `_over` where none can come."""
        head = _HEAD.match(first)
        if head is not None and head.group(1) in self._names:
            self._at = len(self._buffer) - len(first)
            return True
        may_begin = not first or (len(first) <= _LONGEST_HEAD and _HEAD_BEGUN.fullmatch(first))
        self._over = head is not None or not may_begin
        return False

    def _end(self) -> int:
        """Place behind the list's closing bracket; −1 while it is open."""
        while (found := _TOKEN.search(self._buffer, self._at)) is not None:
            character = found.group()
            if character == "\\":
                if found.end() == len(self._buffer):
                    return -1  # what it escapes is yet to come
                self._at = found.end() + 1
                continue
            self._at = found.end()
            if self._quote:
                self._quote = "" if character == self._quote else self._quote
            elif character in "\"'":
                self._quote = character
            elif character in "[({":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    return self._at
        self._at = len(self._buffer)
        return -1

    def _read(self, source: str) -> list[Piece] | None:
        try:
            tree = ast.parse(source, mode="eval").body
            calls = [self._call(node) for node in tree.elts] if isinstance(tree, ast.List) else []
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            return None
        pieces: list[Piece] = []
        for index, (name, arguments) in enumerate(calls):
            pieces += [CallBegin(index, self._call_id(), name), CallArguments(index, arguments), CallEnd(index)]
        return pieces or None

    def _call(self, node: ast.expr) -> tuple[str, str]:
        """(name, arguments as JSON). Raises ValueError or TypeError for anything but a call with literal keywords."""
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or node.args or name not in self._names:
            raise ValueError("no call of a known tool by keywords")
        values: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise ValueError("** is no literal")
            values[keyword.arg] = _literal(keyword.value)
        arguments = json.dumps(values, ensure_ascii=False, allow_nan=False)
        arguments.encode()  # half a surrogate pair can't be sent
        return name, arguments


class _JsonNames(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_NAMES[node.id]) if node.id in _JSON_NAMES else node


def _literal(node: ast.expr) -> Any:
    return ast.literal_eval(_JsonNames().visit(node))
