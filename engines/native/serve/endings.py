"""How an answer's text is shown and ended beyond stop tokens: what a request asks, where the text ends, and loops.

The options of stop strings and special tokens are vLLM's, the others ours. docs/sampling.md lists them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, fields

from engines.native.serve import validate
from engines.native.serve.completeness import SCANNERS, Completeness
from engines.native.serve.errors import invalid
from engines.native.serve.stops import StopMatcher

MAX_REPEATS = 100
MAX_PERIOD = 512


@dataclass(frozen=True, slots=True)
class LoopRule:
    """min_repeats: copies in a row that make a loop; max_period: tokens of one copy, at most; min_tokens: generated
    tokens before which nothing ends."""

    min_repeats: int = 8
    max_period: int = 64
    min_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Endings:
    """include_stop: the stop string, or the stop token's text, is part of the answer. special: special tokens show
    their names. complete: name of what the answer ends with, "" = none (`SCANNERS`)."""

    include_stop: bool = False
    special: bool = False
    complete: str = ""
    loop: LoopRule | None = None

    def detector(self) -> LoopDetector | None:
        return LoopDetector(self.loop) if self.loop else None


PLAIN = Endings()
"""What a request asks that says nothing of it."""


def read(body: validate.Body) -> Endings:
    """Raises ApiError 400 naming the field."""
    # No tokenizer that is served puts blanks between special tokens, so either value gives the same text.
    validate.boolean(body, "spaces_between_special_tokens", True)
    return Endings(
        validate.boolean(body, "include_stop_str_in_output"),
        not validate.boolean(body, "skip_special_tokens", True),
        _stop_on(body),
        _loop_rule(body),
    )


def _stop_on(body: validate.Body) -> str:
    name = validate.string(body, "stop_on")
    if (name and name not in SCANNERS) or body.get("stop_on") == "":
        raise invalid("stop_on", f"stop_on is {name[:40]!r}; it must be one of {', '.join(SCANNERS)}")
    return name


def _loop_rule(body: validate.Body) -> LoopRule | None:
    value = body.get("loop_detection")
    if value is None:
        return None
    names = [each.name for each in fields(LoopRule)]
    if not isinstance(value, dict):
        raise invalid("loop_detection", f"loop_detection must be an object with {', '.join(names)}", "invalid_type")
    for name in value:
        if name not in names:
            param = f"loop_detection.{name[:40]}"
            raise invalid(param, f"loop_detection has no field {name[:40]!r}; it has {', '.join(names)}")
    default = LoopRule()
    named = {f"loop_detection.{name}": number for name, number in value.items()}
    return LoopRule(
        validate.integer(named, "loop_detection.min_repeats", default.min_repeats, 2, MAX_REPEATS),
        validate.integer(named, "loop_detection.max_period", default.max_period, 1, MAX_PERIOD),
        validate.integer(named, "loop_detection.min_tokens", default.min_tokens, 0, 2**63 - 1),
    )


class TextEnd:
    """Where the text of an answer ends: at a stop string, or when it is complete. Used as a StopMatcher is."""

    def __init__(self, stops: list[str], endings: Endings) -> None:
        self._stops = StopMatcher(stops, include=endings.include_stop)
        self._scanner: Completeness | None = SCANNERS[endings.complete]() if endings.complete else None
        self.met: str | None = None
        """The stop string that ended it."""

    def push(self, text: str, counts: bool = True) -> tuple[str, bool]:
        """(text to send, whether it ends there). counts: False while the answer is too short to end."""
        text, met = self._stops.push(text) if counts else (text, False)
        if self._scanner is None:
            self.met = self._stops.met
            return text, met
        text, complete = self._scanner.push(text, counts)
        if met and not complete:
            self.met = self._stops.met
            text += self._scanner.flush()
        return text, met or complete

    def flush(self) -> str:
        """What was held back, when the text ends otherwise."""
        held = self._stops.flush()
        if self._scanner is not None:
            held = self._scanner.push(held, counts=False)[0] + self._scanner.flush()
        return held


class LoopDetector:
    """Ends a generation whose newest tokens are one n-gram over and over.

    Definition: after n generated tokens t[0] … t[n−1], there is a loop if n ≥ min_tokens and, for a period p from 1 to
    max_period with p × min_repeats ≤ n, t[j] = t[j − p] for each of the last p × (min_repeats − 1) places j.

    A mismatch t[j] ≠ t[j − p] rules p out until n = j + 1 + p × (min_repeats − 1): p is looked at only then, from the
    newest token back to the next mismatch, and no pair of places twice. Where nothing repeats these are about
    ln(max_period) / (min_repeats − 1) compares per token, however long the answer is.
    """

    def __init__(self, rule: LoopRule) -> None:
        self._rule = rule
        self._tokens: list[int] = []
        self._compared = list(range(rule.max_period + 1))  # by period: places before it match, back to a mismatch
        # (number of tokens, period): when a period can make a loop at the earliest.
        self._due = [(max(p * rule.min_repeats, rule.min_tokens), p) for p in range(1, rule.max_period + 1)]
        heapq.heapify(self._due)

    def push(self, token: int) -> bool:
        """Whether the generation loops with this token."""
        self._tokens.append(token)
        count = len(self._tokens)
        while self._due[0][0] <= count:
            period = self._due[0][1]
            mismatch = self._mismatch(period, count)
            if mismatch < 0:
                return True
            self._compared[period] = count
            heapq.heapreplace(self._due, (mismatch + 1 + period * (self._rule.min_repeats - 1), period))
        return False

    def _mismatch(self, period: int, count: int) -> int:
        """The last place that differs from the one a period before, −1 if none does where it matters."""
        tokens = self._tokens
        stop = max(self._compared[period], count - period * (self._rule.min_repeats - 1))
        for place in range(count - 1, stop - 1, -1):
            if tokens[place] != tokens[place - period]:
                return place
        return -1
