"""Judging an answer by a rule that a person wrote: exact, contains, regex, json_schema, numeric.

Patterns and schemas run in a process of their own with a time limit (`checks_worker.py`), because Python's `re` can't
be interrupted: a pattern as `(a+)+$` would otherwise hang the whole run.
"""

from __future__ import annotations

import contextlib
import json
import re
import selectors
import subprocess
import sys
from pathlib import Path
from typing import Any

LIMIT_S = 2.0
"""Of one check. An innocent pattern takes microseconds."""

_NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d{1,3})?")
_FENCE = re.compile(r"\A\s*```[A-Za-z]*\n(.*)\n\s*```\s*\Z", re.DOTALL)


class CheckError(ValueError):
    """The rule itself is at fault: it is no pattern, no schema, or takes too long."""


class Checker:
    """`with Checker() as checker`. The worker starts with the first pattern or schema, and anew after a time-out."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit = limit_s
        self._worker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker.communicate()
            self._worker = None

    def fault(self, rule: str, expected: Any, answer: str, options: dict[str, Any]) -> str:
        """Why the answer is wrong, "" for a right one. Raises CheckError."""
        if rule == "exact":
            return _exact(expected, answer, bool(options.get("ignore_case")))
        if rule == "contains":
            return _contains(expected, answer, bool(options.get("ignore_case")))
        if rule == "numeric":
            return _numeric(float(expected), answer, options)
        if rule == "json_schema":
            answer = fenced[1] if (fenced := _FENCE.match(answer)) else answer
        said = self._ask({"rule": rule, "expected": expected, "answer": answer, **options})
        if said.get("error"):
            raise CheckError(str(said["error"]))
        return str(said.get("fault", ""))

    def check_rule(self, rule: str, expected: Any) -> None:
        """Raises CheckError for a pattern or schema that is none, before any answer is asked for."""
        if rule in ("regex", "json_schema"):
            said = self._ask({"rule": rule, "expected": expected, "answer": None})
            if said.get("error"):
                raise CheckError(str(said["error"]))

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        if self._worker is None:
            argv = [sys.executable, "-I", str(Path(__file__).with_name("checks_worker.py"))]
            self._worker = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._read(10 * LIMIT_S)  # it says when it has loaded
        worker = self._worker
        assert worker.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: the read tells
            worker.stdin.write(json.dumps(job).encode() + b"\n")
            worker.stdin.flush()
        return self._read(self._limit)

    def _read(self, limit_s: float) -> dict[str, Any]:
        worker = self._worker
        assert worker is not None
        assert worker.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(worker.stdout, selectors.EVENT_READ)
            line = worker.stdout.readline() if selector.select(limit_s) else b""
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        ended = worker.poll()
        self.__exit__()
        told = f"takes longer than {limit_s:g} s" if ended is None else "needs more memory or stack than it may have"
        return {"error": f"the rule {told} on this answer: nested repeats, as (a+)+, are the usual cause"}


def _same(text: str, ignore_case: bool) -> str:
    return text.strip().casefold() if ignore_case else text.strip()


def _exact(expected: Any, answer: str, ignore_case: bool) -> str:
    """Equal but for white space at the ends; of several, one is enough."""
    wanted = [str(each) for each in (expected if isinstance(expected, list) else [expected])]
    if _same(answer, ignore_case) in [_same(each, ignore_case) for each in wanted]:
        return ""
    return f"is not {' or '.join(map(repr, wanted))}"


def _contains(expected: Any, answer: str, ignore_case: bool) -> str:
    """All of several."""
    wanted = [str(each) for each in (expected if isinstance(expected, list) else [expected])]
    text = _same(answer, ignore_case)
    missing = [each for each in wanted if _same(each, ignore_case) not in text]
    return f"lacks {', '.join(map(repr, missing))}" if missing else ""


def _numeric(expected: float, answer: str, options: dict[str, Any]) -> str:
    """The last number of the answer counts; commas are thousands."""
    found = _NUMBER.findall(answer)
    if not found:
        return "has no number"
    value = float(found[-1].replace(",", "").replace("−", "-"))
    allowed = max(float(options.get("tolerance", 0.0)), float(options.get("relative_tolerance", 0.0)) * abs(expected))
    if abs(value - expected) <= allowed:
        return ""
    return f"its last number is {value:g}, not {expected:g}" + (f" ± {allowed:g}" if allowed else "")
