"""Two versions' answers before a judge, which may be any endpoint: both orders, ties, several votes, and beside the
verdict how far the judge agrees with people."""

from __future__ import annotations

import asyncio
from typing import Any

from evaluation.quality import judging, sets
from evaluation.quality.figures import plain, rate, share
from evaluation.quality.judging import Vote
from evaluation.quality.measure import Context, Item, Measure, Measured
from evaluation.quality.results import Sample
from evaluation.quality.sets import PairRow, SetError, Source
from evaluation.quality.suite import Judge
from evaluation.schema import Finding

SCORES: dict[Vote, float] = {"a": 1.0, "tie": 0.5, "b": 0.0}
CALIBRATION = "calibration:"
MOST_UNREADABLE = 0.05
LENGTH_EFFECT = 1.0
"""Log-odds per standard deviation of length, from which a verdict rather follows the length."""


class JudgeMeasure(Measure[Judge]):
    """`a` is the suite's endpoint, `b` the reference."""

    primary = "win_rate"
    roles = ("endpoint", "reference", "judge")

    def __init__(self, task: Judge, context: Context) -> None:
        super().__init__(task, context)
        self._items: list[Item] = []

    def read(self) -> None:
        found = sets.source(self.task.data, self.context.folder)
        self.dataset = found.facts
        rows = sets.read_rows(found, PairRow, self.task.rows)
        self._items = [self._item(found, line, row, labelled=False) for line, row in rows]
        self.policy = {"votes": self.task.votes, "orders": 2, "temperature": self.task.temperature}
        if self.task.calibration:
            labels = sets.source(self.task.calibration, self.context.folder)
            self.policy["calibration"] = labels.facts
            rows = sets.read_rows(labels, PairRow)
            self._items += [self._item(labels, line, row, labelled=True) for line, row in rows]

    def _item(self, found: Source, line: int, row: PairRow, *, labelled: bool) -> Item:
        if not row.prompt:
            raise SetError(found.name, line, "prompt", "it is empty", "Put what was asked")
        if labelled and row.label not in SCORES:
            raise SetError(found.name, line, "label", f"{row.label!r} is none", "One of a, b, tie")
        for name in ("answer_a", "answer_b"):
            if labelled and getattr(row, name) is None:
                raise SetError(found.name, line, name, "is missing", "A label is about two answers: give both")
        payload = {
            "prompt": row.prompt,
            "answers": [row.answer_a, row.answer_b],
            "reference_answer": row.reference_answer,
            "label": row.label if labelled else "",
        }
        return Item((CALIBRATION if labelled else "") + sets.named(row.id, line), payload, group=str(row.group))

    async def items(self) -> list[Item]:
        """The three endpoints must be there, unless the rows have the answers already."""
        self.context.other("judge")
        if any(item.payload["answers"][1] is None for item in self._items):
            self.context.other("reference")
        return self._items

    async def ask(self, item: Item) -> Sample:
        row = item.payload
        first, second = await asyncio.gather(
            self._answer("endpoint", row, 0),
            self._answer("reference", row, 1),
        )
        ballots = await asyncio.gather(*(self._ballot(row, first, second, turn) for turn in range(self.task.votes)))
        votes = [judging.vote(straight, swapped) for straight, swapped, _ in ballots]
        decided = judging.majority(votes)
        said = [verdict for straight, swapped, _ in ballots for verdict in (straight, swapped)]
        data = {
            "answer_b": second,
            "votes": votes,
            "verdicts": said,
            "unreadable": sum(verdict is None for verdict in said),
            "flipped": sum(
                judging.vote(one, other) == "tie" and (one, other) != ("tie", "tie") for one, other, _ in ballots
            ),
            "first_shown": sum(verdict == "a" for verdict in said),
            "second_shown": sum(verdict == "b" for verdict in said),
            "lengths": [len(first), len(second)],
            "label": row["label"],
            "decided": decided,
            "words": ballots[0][2],
        }
        score = None if decided is None else SCORES[decided]
        reason = "the judge's words hold no verdict" if decided is None else ""
        return Sample(id=item.id, prompt=row["prompt"], answer=first, score=score, reason=reason, data=data)

    async def _answer(self, role: str, row: dict[str, Any], place: int) -> str:
        if row["answers"][place] is not None:
            return str(row["answers"][place])
        messages = [{"role": "user", "content": row["prompt"]}]
        body = {"temperature": 0, "max_tokens": self.task.max_tokens, "seed": self.context.seed}
        return (await self.context.other(role).answer(messages, **body)).text

    async def _ballot(
        self, row: dict[str, Any], first: str, second: str, turn: int
    ) -> tuple[Vote | None, Vote | None, str]:
        """What the judge says in both orders, and its words in the first. The first vote is greedy, so that a single
        one repeats; the others are drawn."""
        body = {
            "temperature": self.task.temperature if turn else 0,
            "max_tokens": self.task.verdict_tokens,
            "seed": self.context.seed + turn,
        }
        judge, rest = self.context.other("judge"), (row["reference_answer"], self.task.criteria)
        straight, swapped = await asyncio.gather(
            judge.answer(judging.question(row["prompt"], first, second, *rest), **body),
            judge.answer(judging.question(row["prompt"], second, first, *rest), **body),
        )
        return judging.verdict(straight.text), judging.verdict(swapped.text), straight.text[:2000]

    def measured(self, samples: list[Sample]) -> Measured:
        compared = [each for each in samples if not each.id.startswith(CALIBRATION)]
        decided = [each for each in compared if each.score is not None]
        scores = [float(each.score or 0.0) for each in decided]
        groups = [each.group or each.id for each in decided]
        said = sum(len(each.data["verdicts"]) for each in samples)
        ballots = sum(len(each.data["votes"]) for each in samples)
        shown = [sum(each.data[name] for each in samples) for name in ("first_shown", "second_shown")]
        figures = {
            "win_rate": rate(scores, groups),
            "wins": share(scores.count(1.0), len(scores)),
            "ties": share(scores.count(0.5), len(scores)),
            "losses": share(scores.count(0.0), len(scores)),
            "undecided": plain(float(len(compared) - len(decided)), "count", len(compared)),
            "unreadable": share(sum(each.data["unreadable"] for each in samples), said),
            "order_flips": share(sum(each.data["flipped"] for each in samples), ballots),
            "first_shown": share(shown[0], sum(shown)),
        }
        findings: list[Finding] = []
        if len(scores) > 1:
            lengths = [(int(one), int(other)) for one, other in (each.data["lengths"] for each in decided)]
            equal, effect = judging.length_controlled(scores, lengths)
            figures["win_rate_length_controlled"] = plain(equal, "share", len(scores))
            figures["length_effect"] = plain(effect, "log_odds", len(scores))
            if abs(effect) > LENGTH_EFFECT:
                told = f"Its verdicts follow the length (log-odds {effect:+.2f})."
                findings.append(self._finding("judge_follows_length", told, effect=round(effect, 2)))
        labelled = [each for each in samples if each.id.startswith(CALIBRATION) and each.data["decided"] is not None]
        figures["kappa"] = judging.kappa([(each.data["decided"], each.data["label"]) for each in labelled])
        findings += self._trusted(figures)
        return Measured(figures, findings=findings)

    def _trusted(self, figures: dict[str, Any]) -> list[Finding]:
        kappa, unreadable = figures["kappa"], figures["unreadable"].value or 0.0
        found: list[Finding] = []
        if kappa.n < self.task.least_labels:
            told = f"It was compared with {kappa.n} human labels; {self.task.least_labels} are wanted to trust it."
            found.append(self._finding("judge_not_calibrated", told, labels=kappa.n, wanted=self.task.least_labels))
        if kappa.value is not None and kappa.n and kappa.value < self.task.least_kappa:
            told = f"Its kappa with people is {kappa.value:.2f}, below {self.task.least_kappa:.2f}."
            found.append(self._finding("judge_disagrees", told, kappa=kappa.value, least=self.task.least_kappa))
        if unreadable > MOST_UNREADABLE:
            told = f"{unreadable:.0%} of its replies hold no single verdict."
            found.append(self._finding("judge_unreadable", told, share=unreadable))
        return found

    def _finding(self, code: str, told: str, **evidence: float) -> Finding:
        remedies = {
            "judge_not_calibrated": "Give `calibration`: rows with prompt, answer_a, answer_b and a person's label.",
            "judge_disagrees": "Take another judge, or say in `criteria` what people looked at.",
            "judge_unreadable": "Raise verdict_tokens, or take a judge that follows the form.",
            "judge_follows_length": "Read win_rate_length_controlled; say in `criteria` how long an answer should be.",
        }
        cause = f"The judge of {self.task.name}: {told}"
        whole = {"task": self.task.name, **evidence}
        return Finding(code=code, severity="warning", cause=cause, remedy=remedies[code], evidence=whole)
