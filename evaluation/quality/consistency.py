"""Two versions of a model on the same token ids, both fed the text (teacher-forced): where does the candidate leave the
reference?

- top-1 match: share of places where both hold the same token likeliest;
- KL(reference ‖ candidate) in nats, mean and P99 over places, on the tokens that both tell of plus all others as one
  bucket. Putting outcomes together never raises a KL, so it is a lower bound of the full vocabulary's; it is the full
  one where the endpoint gives every token (`top: -1`). `covered` is the reference's mass outside the bucket;
- perplexity ratio, candidate over reference;
- flips of the text's own token: likeliest before and no longer (right to wrong), and the other way;
- greedy: the first place where the two answers to a prompt part.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np

from evaluation.metrics.quantiles import quantile
from evaluation.quality import sets, windows
from evaluation.quality.endpoint import Connection, EndpointError
from evaluation.quality.figures import exponential, plain, ratio_of_sums, share
from evaluation.quality.measure import Context, Item, Measure, Measured
from evaluation.quality.results import Sample
from evaluation.quality.scoring import Scored, top_scores
from evaluation.quality.suite import Consistency

LEAST_MASS = 1e-7
"""Of the bucket: float32 sums of a whole vocabulary are off by as much."""


class ConsistencyMeasure(Measure[Consistency]):
    primary = "top1_match"
    roles = ("endpoint", "reference")

    def __init__(self, task: Consistency, context: Context) -> None:
        super().__init__(task, context)
        self._texts: list[windows.Text] = []

    def read(self) -> None:
        found = sets.source(self.task.data, self.context.folder)
        self.dataset = found.facts
        self._texts = windows.read_texts(found, self.task.window, self.task.windows)

    async def items(self) -> list[Item]:
        """Ids are the reference's; a candidate with another tokenizer can't be compared."""
        reference, candidate, task = self.context.other("reference"), self.context.endpoint, self.task
        bos = await windows.bos_ids(reference)
        first = bos if task.bos == "tokenizer" else []
        self.policy = {"window": task.window, "top": task.top, **windows.bos_policy(task.bos, first)}
        for text in self._texts[:3]:
            probe = text.text[:2000]
            if await reference.tokenize(probe) != await candidate.tokenize(probe):
                told = "reference and candidate cut the same text into other tokens"
                hint = "Consistency needs one tokenizer; compare such models by tasks or the judge"
                raise EndpointError("other_tokenizer", told, hint, fatal=True)
        return await windows.cut(reference, self._texts, task.window, task.windows, first)

    async def ask(self, item: Item) -> Sample:
        ids, task = item.payload["ids"], self.task
        reference, candidate = self.context.other("reference"), self.context.endpoint
        (before, named), (now, also_named) = await asyncio.gather(
            top_scores(reference, ids, task.top), top_scores(candidate, ids, task.top)
        )
        if named != also_named:
            told = "one endpoint names its likeliest tokens by id, the other by text"
            raise EndpointError("wrong_logprobs", told, "Serve both with one engine", fatal=True)
        data = compared(before, now)
        data["by_id"] = named
        if task.greedy_tokens:
            data |= await self._greedy(ids[: task.greedy_prompt])
        return Sample(id=item.id, prompt=before.text, score=data["same"] / data["tokens"], data=data)

    async def _greedy(self, prompt: list[int]) -> dict[str, Any]:
        body = {"max_tokens": self.task.greedy_tokens, "temperature": 0, "return_token_ids": True}
        asked = (self.context.other("reference"), self.context.endpoint)
        before, now = await asyncio.gather(*(_continued(each, {"prompt": [prompt], **body}) for each in asked))
        parted = next((at for at, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1]), None)
        if parted is None and len(before) != len(now):
            parted = min(len(before), len(now))  # one ended where the other went on
        return {"parted": parted, "greedy": max(len(before), len(now)), "unit": _unit(before)}

    def measured(self, samples: list[Sample]) -> Measured:
        if not samples:
            return Measured({})
        data, groups = [each.data for each in samples], [each.group for each in samples]
        tokens = [each["tokens"] for each in data]

        def per_token(name: str, unit: str) -> Any:
            return ratio_of_sums([each[name] for each in data], tokens, groups, unit)

        places = np.concatenate([each["kl"] for each in data])
        loss = ratio_of_sums([each["nll"] - each["reference_nll"] for each in data], tokens, groups, "nats")
        summed = [{**each, "kl": sum(each["kl"])} for each in data]
        figures = {
            "top1_match": per_token("same", "share"),
            "kl_mean": ratio_of_sums([each["kl"] for each in summed], tokens, groups, "nats"),
            "kl_p99": plain(quantile(np.sort(places), 0.99), "nats", len(places)),
            "covered": per_token("covered", "share"),
            "perplexity_ratio": exponential(loss, "ratio"),
            "right_to_wrong": per_token("right_to_wrong", "share"),
            "wrong_to_right": per_token("wrong_to_right", "share"),
        }
        if asked := [each for each in data if each.get("greedy")]:
            parted = sorted(each["parted"] for each in asked if each["parted"] is not None)
            figures["greedy_same"] = share(len(asked) - len(parted), len(asked))
            middle = float(parted[len(parted) // 2]) if parted else None
            figures["first_divergence"] = plain(middle, str(asked[0]["unit"]), len(parted))
        whole = all(each["full"] for each in data)
        self.policy["kl"] = "full vocabulary" if whole else "lower bound: the rest of the vocabulary is one bucket"
        return Measured(figures)


def compared(before: Scored, now: Scored) -> dict[str, Any]:
    """Sums over the places of one window, and the KL of each place."""
    kl, covered, full = [], 0.0, True
    same = gained = lost = 0
    for key, one, other in zip(before.keys, before.top, now.top, strict=True):
        divergence, mass = bucketed_kl(one, other)
        kl.append(round(divergence, 7))
        covered += mass
        full = full and mass > 1 - 1e-3 and one.keys() == other.keys()
        best, now_best = max(one, key=one.__getitem__), max(other, key=other.__getitem__)
        same += best == now_best
        lost += best == key != now_best
        gained += now_best == key != best
    return {
        "tokens": len(kl),
        "same": same,
        "right_to_wrong": lost,
        "wrong_to_right": gained,
        "kl": kl,
        "covered": covered,
        "full": full,
        "reference_nll": -sum(before.own),
        "nll": -sum(now.own),
    }


def bucketed_kl(one: dict[str, float], other: dict[str, float]) -> tuple[float, float]:
    """KL(one ‖ other) in nats over the tokens that both have, and the rest of each as one bucket; and the mass of `one`
    on those tokens. Values are log-probabilities."""
    shared = one.keys() & other.keys()
    mass, other_mass, total = 0.0, 0.0, 0.0
    for name in shared:
        probability = math.exp(one[name])
        mass += probability
        other_mass += math.exp(other[name])
        total += probability * (one[name] - other[name])
    rest = 1 - mass
    if rest > LEAST_MASS:
        total += rest * math.log(rest / max(1 - other_mass, LEAST_MASS))
    return max(total, 0.0), min(mass, 1.0)


async def _continued(asked: Connection, body: dict[str, Any]) -> list[Any]:
    """Token ids of a greedy answer; its characters where the endpoint tells no ids."""
    found = await asked.post("/v1/completions", body)
    choice = found["choices"][0]
    ids = choice.get("token_ids")
    return list(ids) if isinstance(ids, list) else list(str(choice.get("text", "")))


def _unit(answer: list[Any]) -> str:
    return "characters" if answer and isinstance(answer[0], str) else "tokens"
