"""Multiple choice: the choice with the greatest log-likelihood after the prompt, as lm-eval's `acc` has it."""

from __future__ import annotations

from evaluation.quality import sets, windows
from evaluation.quality.figures import rate
from evaluation.quality.measure import Context, Item, Measure, Measured
from evaluation.quality.results import Sample
from evaluation.quality.scoring import scores
from evaluation.quality.sets import ChoiceRow, SetError, Source
from evaluation.quality.suite import Choices


class ChoicesMeasure(Measure[Choices]):
    primary = "accuracy"

    def __init__(self, task: Choices, context: Context) -> None:
        super().__init__(task, context)
        self._items: list[Item] = []
        self._bos: list[int] = []

    def read(self) -> None:
        found = sets.source(self.task.data, self.context.folder)
        self.dataset = found.facts
        self._items = [self._item(found, line, row) for line, row in sets.read_rows(found, ChoiceRow, self.task.rows)]

    def _item(self, found: Source, line: int, row: ChoiceRow) -> Item:
        if len(row.choices) < 2 or not all(row.choices):
            raise SetError(found.name, line, "choices", "fewer than two, or an empty one", 'As ["(A)", "(B)"]')
        if not 0 <= row.gold < len(row.choices):
            told = f"{row.gold} is no place in {len(row.choices)} choices"
            raise SetError(found.name, line, "gold", told, "Count from 0")
        if not row.prompt:
            raise SetError(found.name, line, "prompt", "it is empty", "Put the question")
        payload = {"prompt": row.prompt, "choices": row.choices, "gold": row.gold}
        return Item(sets.named(row.id, line), payload, group=str(row.group))

    async def items(self) -> list[Item]:
        bos = await windows.bos_ids(self.context.endpoint)
        self._bos = bos if self.task.bos == "tokenizer" else []
        self.policy = {**windows.bos_policy(self.task.bos, self._bos), "tokenizer_bos": bos}
        return self._items

    async def ask(self, item: Item) -> Sample:
        """A choice is what follows the prompt's own tokens in prompt + space + choice."""
        asked, row = self.context.endpoint, item.payload
        before = len(self._bos) + len(await asked.tokenize(row["prompt"]))
        wholes = [[*self._bos, *await asked.tokenize(f"{row['prompt']} {choice}")] for choice in row["choices"]]
        found = await scores(asked, wholes)
        sums = [sum(each.own[before - 1 :]) for each in found]
        best = max(range(len(sums)), key=sums.__getitem__)
        right, wanted = best == row["gold"], row["choices"][row["gold"]]
        return Sample(
            id=item.id,
            prompt=row["prompt"],
            expected=wanted,
            answer=row["choices"][best],
            score=float(right),
            reason="" if right else f"{row['choices'][best]!r} is likelier than {wanted!r}",
            data={"loglikelihoods": sums, "choices": row["choices"]},
        )

    def measured(self, samples: list[Sample]) -> Measured:
        scored = [each for each in samples if each.score is not None]
        chance = sum(1 / len(each.data["choices"]) for each in scored) / len(scored) if scored else None
        accuracy = rate([each.score or 0.0 for each in scored], [each.group for each in scored])
        return Measured({"accuracy": accuracy}, chance=chance)
