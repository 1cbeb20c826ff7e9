"""Prompts made of words: synthetic, with a shared prefix, and sessions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from evaluation.schema import Sessions, SharedPrefix, Synthetic
from evaluation.workload import lengths
from evaluation.workload.datasets.source import Draw, Made, Source
from evaluation.workload.errors import DatasetError
from evaluation.workload.item import Item, Turn
from evaluation.workload.text import Fitter, Words


def user(text: str, output: int, before: Sequence[dict[str, Any]] = ()) -> Turn:
    """A turn for either api."""
    return Turn(messages=[*before, {"role": "user", "content": text}], prompt=text, max_tokens=output)


class SyntheticSource(Source[Synthetic]):
    async def item(self, index: int) -> Made:
        draw = self.draw
        random = draw.rng("length", index)
        target, output = lengths.draw(self.spec.prompt, random), lengths.draw(self.spec.output, random)
        if not self.spec.after_template:
            target += await draw.template_tokens()
        turn, ids = await draw.fitter.fit(target, Words(draw.rng("text", index)), lambda text: user(text, output))
        turn.prompt_tokens = len(ids)
        return Made(Item(turns=[turn], after_template=draw.tokenizer.template), [ids])


class SharedPrefixSource(Source[SharedPrefix]):
    """A fixed prefix (a system message, where it is a chat), one of `groups`, then the user's own part."""

    def __init__(self, spec: SharedPrefix, draw: Draw) -> None:
        super().__init__(spec, draw)
        self._prefixes: dict[int, tuple[str, int]] = {}

    async def item(self, index: int) -> Made:
        draw = self.draw
        random = draw.rng("length", index)
        own, output = lengths.draw(self.spec.prompt, random), lengths.draw(self.spec.output, random)
        prefix, prefix_tokens = await self._prefix(index % self.spec.groups)

        def turn_of(text: str) -> Turn:
            system = {"role": "system", "content": prefix}
            return Turn(messages=[system, {"role": "user", "content": text}], prompt=f"{prefix}\n\n{text}",
                        max_tokens=output)  # fmt: skip

        turn, ids = await draw.fitter.fit(prefix_tokens + own, Words(draw.rng("text", index)), turn_of, prefix_tokens)
        turn.prompt_tokens = len(ids)
        return Made(Item(turns=[turn], after_template=draw.tokenizer.template), [ids])

    async def _prefix(self, group: int) -> tuple[str, int]:
        """Its text, and its tokens with the template's (or without, as `after_template` says)."""
        if group not in self._prefixes:
            draw, target = self.draw, self.spec.prefix_tokens
            if not self.spec.after_template:
                target += await draw.template_tokens()
            turn, ids = await draw.fitter.fit(target, Words(draw.rng("prefix", group)), lambda text: user(text, 1))
            self._prefixes[group] = (str(turn.prompt), len(ids))
        return self._prefixes[group]


class SessionsSource(Source[Sessions]):
    """Turns of a conversation, after think times; the answers between them are the model's own."""

    def __init__(self, spec: Sessions, draw: Draw) -> None:
        super().__init__(spec, draw)
        if not draw.chat:
            raise DatasetError("dataset", "sessions are chats, but the endpoint's api is 'completions'",
                               "Set endpoint.api to 'chat'", field="kind")  # fmt: skip

    async def item(self, index: int) -> Made:
        spec, draw = self.spec, self.draw
        random = draw.rng("length", index)
        system = await self._system()
        said: list[dict[str, Any]] = []  # so far, with answers of the length asked for
        turns: list[Turn] = []
        prompts: list[list[int]] = []
        for number in range(lengths.draw(spec.turns, random)):
            before = [{"role": "system", "content": system}] if system and not number else []
            target, output = lengths.draw(spec.prompt, random), lengths.draw(spec.output, random)
            if before:
                target += spec.system_tokens
            turn, ids = await draw.fitter.fit(
                target, Words(draw.rng("text", index, number)), partial(user, before=before, output=output)
            )
            turn.prompt_tokens = len(ids)
            turn.think_s = float(random.exponential(spec.think_s)) if number and spec.think_s else 0.0
            turns.append(turn)
            said += turn.messages
            prompts.append(await draw.tokenizer.ids(Turn(messages=said)) if number else ids)
            said.append({"role": "assistant", "content": await self._answer(index, number, output)})
        return Made(Item(turns=turns, session=index, after_template=draw.tokenizer.template), prompts)

    async def _answer(self, index: int, number: int, output: int) -> str:
        """As long as one of the model's: what the cache should find depends on it."""
        target = output + await self.draw.template_tokens()
        turn, _ = await self.draw.fitter.fit(
            target, Words(self.draw.rng("answer", index, number)), partial(user, output=1)
        )
        return str(turn.prompt)

    async def _system(self) -> str:
        if not self.spec.system_tokens:
            return ""
        turn, _ = await Fitter(self.draw.tokenizer).fit(
            self.spec.system_tokens, Words(self.draw.rng("prefix", 0)), lambda text: user(text, 1)
        )
        return str(turn.prompt)
