"""Beam search: the most likely answers instead of drawn ones, for requests with `use_beam_search`.

The search is that of transformers' `generate(num_beams=…)`, so that both give the same answers. Each round asks the
engine for one token after every open beam. Beams share the blocks of what they have in common through the prefix cache;
of a beam's own part, what lies in its last, unfilled block is computed again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from engines.native.ipc import Ending, PromptLogprobs, TopTokens
from engines.native.request import Finish, SamplingParams, TimeoutLayer
from engines.native.serve.beam_options import BeamOptions
from engines.native.serve.detokenize import Detokenizer
from engines.native.serve.engine import Engine
from engines.native.serve.errors import ApiError
from engines.native.serve.generate import Answer, Delta, Generation, Generator, Usage, failure
from engines.native.serve.stream import Stream

AT_ONCE = 8
"""Prompts of one request that are searched side by side."""


@dataclass(frozen=True, slots=True)
class Beam:
    """tokens of an answer with their log-probabilities and, where asked, the most likely ones; score: their sum."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    tops: tuple[TopTokens, ...] = ()
    score: float = 0.0
    finish: Finish | None = None

    def extended(self, token: int, logprob: float, top: TopTokens) -> Beam:
        return Beam((*self.tokens, token), (*self.logprobs, logprob), (*self.tops, top), self.score + logprob)


class BeamSearch:
    """One prompt's beams; the caller brings what may follow each. The rules of transformers' `_beam_search`."""

    def __init__(self, options: BeamOptions, params: SamplingParams) -> None:
        self._options, self._params = options, params
        self._stops = frozenset(params.stop_token_ids)
        self.open: list[Beam] = [Beam()]
        self._complete: list[tuple[float, Beam]] = []  # with their score per length, best first
        self._hopeful = True  # an open beam may still become better than the worst complete one
        self.done = False

    @property
    def followers(self) -> int:
        """How many of the most likely next tokens are needed of each beam: `width` that go on, whatever ends."""
        return self._options.width + len(self._stops)

    def advance(self, next_tokens: list[TopTokens], stopped: Stopped) -> None:
        """next_tokens: per open beam (ids, log-probabilities), best first. stopped: whether a beam's text ends it."""
        width, length = self._options.width, len(self.open[0].tokens) + 1
        grown = [
            beam.extended(token, logprob, top)
            for beam, top in zip(self.open, next_tokens, strict=True)
            for token, logprob in zip(*top, strict=True)
            if length > self._params.min_tokens or token not in self._stops
        ]
        grown.sort(key=lambda beam: beam.score, reverse=True)
        full = length >= self._params.max_tokens
        finished: list[Beam] = []
        self.open = []
        for rank, beam in enumerate(grown):
            finish = self._finish(beam, stopped, full)
            if finish is None and len(self.open) < width:
                self.open.append(beam)
            elif finish is not None and rank < width:
                finished.append(replace(beam, finish=finish))
            if rank >= width and len(self.open) == width:
                break
        closed = self._options.early_stopping and len(self._complete) >= width
        if self._hopeful and not closed:
            self._keep(finished)
        if self._hopeful and len(self._complete) >= width and self.open:
            self._hopeful = self._per_length(self.open[0]) > self._complete[-1][0]
        closed = self._options.early_stopping and len(self._complete) >= width
        self.done = full or not self.open or closed or not self._hopeful

    def give_up(self) -> None:
        """The time is over: what is open counts as it stands."""
        self._keep([replace(beam, finish=Finish.LENGTH) for beam in self.open if beam.tokens])
        self.done = True

    def best(self, count: int) -> list[Beam]:
        return [beam for _, beam in self._complete[:count]]

    def _finish(self, beam: Beam, stopped: Stopped, full: bool) -> Finish | None:
        if beam.tokens[-1] in self._stops or (len(beam.tokens) >= self._params.min_tokens and stopped(beam)):
            return Finish.STOP
        return Finish.LENGTH if full else None

    def _keep(self, finished: list[Beam]) -> None:
        self._complete += [(self._per_length(beam), beam) for beam in finished]
        self._complete.sort(key=lambda scored: scored[0], reverse=True)
        del self._complete[self._options.width :]

    def _per_length(self, beam: Beam) -> float:
        return beam.score / math.pow(len(beam.tokens), self._options.length_penalty)


class Stopped:
    """Whether a stop string has come up in a beam's text."""

    def __init__(self, stops: list[str], detokenizer: Detokenizer) -> None:
        self._stops, self._detokenizer = stops, detokenizer

    def __call__(self, beam: Beam) -> bool:
        if not self._stops:
            return False
        text = self._detokenizer.text(list(beam.tokens))
        return any(stop in text for stop in self._stops)


class BeamGenerator(Generator):
    """As `generate.Generator`, for a Generation with `beams`. Answers come whole: which beam wins shows at the end."""

    def __init__(self, engine: Engine, detokenizer: Detokenizer, generation: Generation) -> None:
        assert generation.beams is not None
        super().__init__(engine, detokenizer, generation)
        self._options = generation.beams
        self._begun = time.monotonic()
        self._cached: dict[int, int] = {}  # prompt → tokens found in the prefix cache at first
        self._scored: dict[int, list[PromptLogprobs]] = {}

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        """The n best answers to each prompt, best first. Raises ApiError."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> list[Beam]:
            async with places:
                return await self._search(number)

        tasks = [asyncio.create_task(one(number)) for number in range(len(self._generation.prompts))]
        try:
            for number, task in enumerate(tasks):
                for beam in await task:
                    yield self._answer(number, beam)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def collect(self) -> tuple[list[Delta], Usage]:
        return [delta async for delta in self.deltas()], self.usage

    @property
    def usage(self) -> Usage:
        """Of the answers given: what other beams took is the search's own cost."""
        return Usage(
            sum(map(len, self._generation.prompts)),
            sum(answer.tokens for answer in self._answers),
            sum(self._cached.values()),
            sum(answer.reasoning_tokens for answer in self._answers),
        )

    def prompt_of(self, index: int) -> int:
        return index // self._generation.n

    def prompt_logprobs(self, index: int) -> list[PromptLogprobs]:
        return self._scored.get(self.prompt_of(index), [])

    async def _search(self, number: int) -> list[Beam]:
        generation = self._generation
        search = BeamSearch(self._options, generation.params)
        stopped = Stopped(generation.stops, self._detokenizer)
        budget = self._options.budget_s or math.inf
        while not search.done:
            search.advance(await self._round(number, search), stopped)
            spent = time.monotonic() - self._begun
            if not search.done and spent > budget:
                search.give_up()
            if spent > (generation.timeouts.total or math.inf):
                message = f"not finished within {generation.timeouts.total:g} s"
                raise ApiError(504, message, code=TimeoutLayer.TOTAL)
        return search.best(generation.n)

    async def _round(self, number: int, search: BeamSearch) -> list[TopTokens]:
        """What may follow each open beam."""
        generation, arrived = self._generation, asyncio.Event()
        prompt, first = generation.prompts[number], not search.open[0].tokens
        scores = generation.params.prompt_logprobs if first else -1
        params = SamplingParams(temperature=0, max_tokens=1, logprobs=search.followers, prompt_logprobs=scores)
        with ExitStack() as stack:
            streams = []
            for beam in search.open:
                stream = self._engine.submit(
                    [*prompt, *beam.tokens],
                    params,
                    arrived,
                    priority=generation.priority,
                    salt=generation.salt,
                    timeouts=generation.timeouts,
                    tenant=generation.tenant,
                )
                stack.callback(self._engine.close, stream)
                streams.append(stream)
            while any(stream.ending is None for stream in streams):
                await arrived.wait()
                arrived.clear()
        if first:
            self._cached[number] = streams[0].cached_tokens
            self._scored[number] = streams[0].prompt_logprobs
        return [_followers(stream) for stream in streams]

    def _answer(self, number: int, beam: Beam) -> Delta:
        """Its text, by the same way as that of a drawn answer."""
        generation = self._generation
        stream = Stream(0, generation.prompts[number], generation.params, asyncio.Event())
        asked = generation.params.logprobs
        for token, logprob, (ids, values) in zip(beam.tokens, beam.logprobs, beam.tops, strict=True):
            given = logprob if asked >= 0 else None
            stream.feed(token, given, (ids[:asked], values[:asked]) if asked >= 0 else None, time.monotonic())
        stream.end(Ending(0, beam.finish or Finish.LENGTH))
        answer = Answer(len(self._answers), stream, generation, self._detokenizer)
        self._answers.append(answer)
        delta = answer.advance()
        assert delta is not None
        return delta


def generator_for(generation: Generation) -> type[Generator]:
    return BeamGenerator if generation.beams is not None else Generator


def _followers(stream: Stream) -> TopTokens:
    ending = stream.ending
    if ending is not None and ending.finish not in (Finish.STOP, Finish.LENGTH):
        raise failure(ending)
    top = stream.top[0] if stream.top else None
    if top is None:
        raise ApiError(500, "the engine gave no log-probabilities", code="engine_error")
    return top
