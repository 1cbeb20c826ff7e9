"""Business sets: each row's answer must meet the rule that its author wrote."""

from __future__ import annotations

import json
import math
from typing import Any

from evaluation.quality import sets
from evaluation.quality.checks import Checker, CheckError
from evaluation.quality.figures import rate, share
from evaluation.quality.measure import Context, Item, Measure, Measured
from evaluation.quality.results import Sample
from evaluation.quality.sets import RuleRow, SetError, Source
from evaluation.quality.suite import Rules


class RulesMeasure(Measure[Rules]):
    primary = "accuracy"

    def __init__(self, task: Rules, context: Context) -> None:
        super().__init__(task, context)
        self._checker = Checker()
        self._items: list[Item] = []
        self.policy = {"temperature": task.temperature, "max_tokens": task.max_tokens}

    def read(self) -> None:
        """Every rule is looked at before the first question."""
        found = sets.source(self.task.data, self.context.folder)
        self.dataset = found.facts
        self._items = [self._item(found, line, row) for line, row in sets.read_rows(found, RuleRow, self.task.rows)]

    async def items(self) -> list[Item]:
        return self._items

    def _item(self, found: Source, line: int, row: RuleRow) -> Item:
        def wrong(field: str, reason: str, fix: str) -> SetError:
            return SetError(found.name, line, field, reason, fix)

        if bool(row.prompt) == bool(row.messages):
            raise wrong("prompt", "a row has either prompt or messages", "Fill in one of them")
        rule = row.rule or self.task.rule
        if rule is None:
            raise wrong(
                "rule", "neither the row nor the task names one", "exact, contains, regex, json_schema, numeric"
            )
        expected = _number(row.expected) if rule == "numeric" else row.expected
        if expected is None:
            raise wrong("expected", f"{row.expected!r} is no number", "As 18 or -2.5")
        if rule in ("exact", "contains") and not _is_texts(expected):
            raise wrong("expected", "it is neither a text nor a list of texts", "Put the text, or several in [ ]")
        if rule == "regex" and not isinstance(expected, str):
            raise wrong("expected", f"{expected!r} is no pattern", "Write it as a text")
        try:
            self._checker.check_rule(rule, expected)
        except CheckError as error:
            raise wrong("expected", str(error), "Mend the rule of this row") from error
        messages = row.messages or [{"role": "user", "content": row.prompt}]
        if self.task.system:
            messages = [{"role": "system", "content": self.task.system}, *messages]
        options = {"ignore_case": row.ignore_case, "tolerance": row.tolerance}
        options["relative_tolerance"] = row.relative_tolerance
        payload = {"messages": messages, "rule": rule, "expected": expected, "options": options}
        return Item(sets.named(row.id, line), payload, group=str(row.group))

    async def ask(self, item: Item) -> Sample:
        asked = item.payload
        body = {"temperature": self.task.temperature, "max_tokens": self.task.max_tokens, "seed": self.context.seed}
        found = await self.context.endpoint.answer(asked["messages"], **body)
        sample = Sample(
            id=item.id,
            prompt=_as_text(asked["messages"]),
            expected=_shown(asked["expected"]),
            answer=found.text,
            data={"rule": asked["rule"], "finish_reason": found.finish_reason, "tokens": found.completion_tokens},
        )
        try:
            sample.reason = self._checker.fault(asked["rule"], asked["expected"], found.text, asked["options"])
            sample.score = float(not sample.reason)
        except CheckError as error:
            sample.error = f"bad_rule: {error}"
        return sample

    def measured(self, samples: list[Sample]) -> Measured:
        scores = [each.score for each in samples if each.score is not None]
        groups = [each.group for each in samples if each.score is not None]
        cut = sum(each.data.get("finish_reason") == "length" for each in samples)
        figures = {"accuracy": rate(scores, groups), "cut_answers": share(cut, len(samples))}
        for rule in sorted({str(each.data.get("rule", "")) for each in samples}):
            of_rule = [each.score for each in samples if each.data.get("rule") == rule and each.score is not None]
            if of_rule:
                figures[f"accuracy_{rule}"] = share(int(sum(of_rule)), len(of_rule))
        return Measured(figures, chance=self.task.chance)

    def close(self) -> None:
        self._checker.__exit__()


def _number(value: Any) -> float | None:
    """Of a number, or of the text of one (CSV has no other)."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _is_texts(value: Any) -> bool:
    several = value if isinstance(value, list) else [value]
    return bool(several) and all(isinstance(each, str | int | float) for each in several)


def _as_text(messages: list[dict[str, Any]]) -> str:
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n\n".join(f"[{each.get('role', '')}] {each.get('content', '')}" for each in messages)


def _shown(expected: Any) -> str:
    return expected if isinstance(expected, str) else json.dumps(expected, ensure_ascii=False)
