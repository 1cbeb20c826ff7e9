"""Beam search: the most likely answers instead of drawn ones, for requests with `use_beam_search`.

The search is that of transformers' `generate(num_beams=…)`, so that both give the same answers. Each round asks the
engine for one token after every open beam: a fork of the request that found it. Forks share the blocks of what they
have in common, and each copies the last, unfilled one to write on in it (`engines.native.prefixes`): a round computes
one token per beam.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

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


@dataclass(frozen=True, slots=True, eq=False)
class Beam:
    """An answer as a chain of tokens, which beams that begin alike share. top: what could have stood in the place of
    `token`; score: the sum of all log-probabilities."""

    before: Beam | None = None
    token: int = -1
    logprob: float = 0.0
    top: TopTokens = field(default_factory=lambda: ([], []))
    score: float = 0.0
    length: int = 0
    finish: Finish | None = None

    def extended(self, token: int, logprob: float, top: TopTokens) -> Beam:
        return Beam(self, token, logprob, top, self.score + logprob, self.length + 1)

    def links(self, most: int | None = None) -> list[Beam]:
        """Its tokens' beams, first to last; of them the last `most`."""
        found: list[Beam] = []
        beam: Beam | None = self
        while beam is not None and beam.length and (most is None or len(found) < most):
            found.append(beam)
            beam = beam.before
        return found[::-1]

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(link.token for link in self.links())


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
        width, length = self._options.width, self.open[0].length + 1
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
        self._keep([replace(beam, finish=Finish.LENGTH) for beam in self.open if beam.length])
        self.done = True

    def best(self, count: int) -> list[Beam]:
        return [beam for _, beam in self._complete[:count]]

    def _finish(self, beam: Beam, stopped: Stopped, full: bool) -> Finish | None:
        if beam.token in self._stops or (beam.length >= self._params.min_tokens and stopped(beam)):
            return Finish.STOP
        return Finish.LENGTH if full else None

    def _keep(self, finished: list[Beam]) -> None:
        self._complete += [(self._per_length(beam), beam) for beam in finished]
        self._complete.sort(key=lambda scored: scored[0], reverse=True)
        del self._complete[self._options.width :]

    def _per_length(self, beam: Beam) -> float:
        return beam.score / math.pow(beam.length, self._options.length_penalty)


class Stopped:
    """Whether a stop string has come up in a beam's text, with its last token. A token that has text has a character
    or a part of one: so many of the last ones are looked at as could hold the longest string."""

    def __init__(self, stops: list[str], detokenizer: Detokenizer) -> None:
        self._stops, self._detokenizer = stops, detokenizer
        self._most = 4 * max(map(len, stops), default=0) + 8

    def __call__(self, beam: Beam) -> bool:
        if not self._stops:
            return False
        text = self._detokenizer.text([link.token for link in beam.links(self._most)])
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
        prompt, first = generation.prompts[number], not search.open[0].length
        scores = generation.params.prompt_logprobs if first else -1
        params = SamplingParams(
            temperature=0, max_tokens=1, logprobs=search.followers, prompt_logprobs=scores, forks=True
        )
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
        for link in beam.links():
            if asked < 0:
                stream.feed(link.token, None, None, time.monotonic())
            else:
                ids, values = link.top
                stream.feed(link.token, link.logprob, (ids[:asked], values[:asked]), time.monotonic())
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
        raise failure(ending, stream.params)
    top = stream.top[0] if stream.top else None
    if top is None:
        raise ApiError(500, "the engine gave no log-probabilities", code="engine_error")
    return top
