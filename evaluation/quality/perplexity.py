"""Perplexity of a text through the endpoint: exp of the mean negative log-likelihood per token, in nats; the first of
each window has no context and is left out."""

from __future__ import annotations

from evaluation.quality import sets, windows
from evaluation.quality.figures import exponential, ratio_of_sums
from evaluation.quality.measure import Context, Item, Measure, Measured
from evaluation.quality.results import Sample
from evaluation.quality.scoring import scores
from evaluation.quality.suite import Perplexity


class PerplexityMeasure(Measure[Perplexity]):
    primary = "nll"

    def __init__(self, task: Perplexity, context: Context) -> None:
        super().__init__(task, context)
        self._texts: list[windows.Text] = []

    def read(self) -> None:
        found = sets.source(self.task.data, self.context.folder)
        self.dataset = found.facts
        self._texts = windows.read_texts(found, self.task.window, self.task.windows)

    async def items(self) -> list[Item]:
        asked, task = self.context.endpoint, self.task
        bos = await windows.bos_ids(asked)
        first = bos if task.bos == "tokenizer" else []
        self.policy = {"window": task.window, **windows.bos_policy(task.bos, first), "tokenizer_bos": bos}
        return await windows.cut(asked, self._texts, task.window, task.windows, first)

    async def ask(self, item: Item) -> Sample:
        (scored,) = await scores(self.context.endpoint, [item.payload["ids"]])
        loss = -sum(scored.own)
        data = {"nll": loss, "tokens": len(scored.own)}
        return Sample(id=item.id, prompt=scored.text, score=loss / len(scored.own), data=data)

    def measured(self, samples: list[Sample]) -> Measured:
        sums = [each.data["nll"] for each in samples]
        weights = [each.data["tokens"] for each in samples]
        loss = ratio_of_sums(sums, weights, [each.group for each in samples], "nats")
        return Measured({"nll": loss, "perplexity": exponential(loss, "perplexity")})
