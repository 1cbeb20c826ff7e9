"""From tokens to what a client gets: text cut at stop strings, logprobs, the reason of the end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from time import perf_counter

from engines.native.grammar.spec import INVALID_GRAMMAR
from engines.native.ipc import Ending, PromptLogprobs, TopTokens
from engines.native.request import NO_TIMEOUTS, Finish, SamplingParams, TimeoutLayer, Timeouts
from engines.native.serve.beam_options import BeamOptions
from engines.native.serve.detokenize import Detokenizer
from engines.native.serve.endings import PLAIN, Endings, TextEnd
from engines.native.serve.engine import Engine
from engines.native.serve.errors import ApiError, invalid
from engines.native.serve.parsers.reasoning import ReasoningSplitter, ReasoningTags
from engines.native.serve.sourced import AnswerSources, Piece, merged
from engines.native.serve.stream import Stream


@dataclass(frozen=True, slots=True)
class Generation:
    """What an endpoint asks of the engine: one or more prompts, answered alike.

    n: answers to each prompt that the client gets; best_of: those drawn, of which the best n are kept.
    named_stop_ids: stop tokens that the client named, as against the model's own end.
    wants_token_ids: a piece with nothing but ids is news, too.
    wants_sources: of each piece of text, who guessed it.
    reasoning: the model's tags, where its reasoning is kept apart; stop strings apply to the answer alone.
    thinking: the prompt has begun the reasoning. detokenizer: another than the model's own, to show tags.
    """

    prompts: list[list[int]]
    params: SamplingParams
    stops: list[str]
    priority: int = 0
    salt: str = ""
    n: int = 1
    best_of: int = 1
    named_stop_ids: frozenset[int] = frozenset()
    wants_token_ids: bool = False
    wants_sources: bool = False
    reasoning: ReasoningTags | None = None
    thinking: bool = False
    detokenizer: Detokenizer | None = None
    endings: Endings = PLAIN
    beams: BeamOptions | None = None  # search instead of drawing (`engines.native.serve.beams`)
    timeouts: Timeouts = NO_TIMEOUTS
    tenant: str = ""

    def params_of(self, copy: int) -> SamplingParams:
        """Of the copy-th answer to a prompt. It draws what a request with the seed `seed + copy` would draw alone, so
        that each answer can be had again by itself, and the first is that of n = 1. The first alone scores the prompt:
        the others take it from the cache."""
        if copy == 0:
            return self.params
        seed = (self.params.seed + copy + 2**63) % 2**64 - 2**63
        return replace(self.params, seed=seed, prompt_logprobs=-1)


@dataclass(slots=True)
class TokenLogprob:
    token: int
    logprob: float
    top: TopTokens | None


@dataclass(slots=True)
class Delta:
    """The next piece of one answer. finish: `stop` or `length` with the last piece.

    token_ids: all that count as generated, the one that ends the answer included; some have no text (yet).
    stopped_by: the stop string, or the stop token that the client named, that ended it.
    reasoning: comes before all text of the answer; the reasoning's own tags are in neither.
    pieces, reasoning_pieces: of both, who guessed them; None where nobody asked.
    """

    index: int
    text: str
    reasoning: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: Finish | None = None
    token_ids: list[int] = field(default_factory=list)
    stopped_by: str | int | None = None
    pieces: list[Piece] | None = None
    reasoning_pieces: list[Piece] | None = None
    is_news: bool = True  # False: a client would see nothing new

    @property
    def only_text(self) -> bool:
        return bool(self.text) and self.finish is None and not self.reasoning and not self.logprobs


@dataclass(slots=True)
class Usage:
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0  # of the completion tokens, those between the tags
    accepted_tokens: int | None = None  # of them, those that were guessed; None: the engine does not speculate
    rejected_tokens: int | None = None  # guessed for these answers and not said; None: not known


class Answer:
    """One prompt's answer while it grows. proposers: their names by number, for who asks for sources."""

    def __init__(
        self,
        index: int,
        stream: Stream,
        generation: Generation,
        detokenizer: Detokenizer,
        proposers: tuple[str, ...] = (),
    ) -> None:
        self.index, self.stream = index, stream
        self.tokens = 0  # counted to the client: up to the one that completes a stop string
        self.finish: Finish | None = None
        self._min_tokens = generation.params.min_tokens
        self._stop_ids = frozenset(generation.params.stop_token_ids)
        self._named_stop_ids = generation.named_stop_ids
        self._ids_are_news = generation.wants_token_ids
        endings = generation.endings
        shown = generation.detokenizer or detokenizer
        self._text = (shown.unabridged if endings.special else shown).stream()
        self._stops = TextEnd(generation.stops, endings)
        self._include_stop = endings.include_stop
        self._loops = endings.detector()
        self.reasoning_tokens = self.accepted_tokens = 0
        self._sources = AnswerSources(proposers) if generation.wants_sources else None
        self._splitter: ReasoningSplitter | None = None
        if generation.reasoning is not None:
            self._splitter = ReasoningSplitter(generation.reasoning, generation.thinking)
        self._only_text = not (generation.stops or endings.complete or self._loops or generation.wants_sources)

    def advance(self) -> Delta | None:
        """Take in what came. None if nothing did. Raises ApiError where the request failed."""
        ending = self.stream.ending
        if not self.stream.tokens and ending is None:  # most of many answers, in most steps
            return None
        tokens, logprobs, top, sources = self.stream.take()
        if self._only_text and self._splitter is None and ending is None and not logprobs:
            # Nothing looks at single tokens.
            self.tokens += len(tokens)
            self.accepted_tokens += len(sources) - sources.count(-1)
            text = "".join(map(self._text.push, tokens))
            return Delta(self.index, text, token_ids=tokens, is_news=bool(text) or self._ids_are_news)
        pieces: list[str] = []
        delta = Delta(self.index, "")
        for place, token in enumerate(tokens):
            source = sources[place] if sources else -1
            self.tokens += 1
            self.accepted_tokens += source >= 0
            delta.token_ids.append(token)
            if logprobs:
                delta.logprobs.append(TokenLogprob(token, logprobs[place], top[place]))
            last = ending is not None and ending.finish is Finish.STOP and place == len(tokens) - 1
            if last and token in self._stop_ids:
                delta.stopped_by = token if token in self._named_stop_ids else None
                if self._include_stop:
                    pieces.append(self._stops.flush() + self._shown(token, delta, source))
                break  # else the token that ends an answer is no part of it
            text, met = self._stops.push(self._shown(token, delta, source), self.tokens >= self._min_tokens)
            pieces.append(text)
            if met:
                self.finish, delta.stopped_by = Finish.STOP, self._stops.met
                break
            if self._loops is not None and self._loops.push(token):
                self.finish = Finish.REPETITION
                pieces.append(self._rest(delta))
                break
        if self.finish is None and ending is not None:
            late = ending.finish is Finish.TIMEOUT and self.tokens > 0  # a stream keeps what it has
            if ending.finish not in (Finish.STOP, Finish.LENGTH) and not late:
                raise failure(ending, self.stream.params)
            self.finish = ending.finish
            pieces.append(self._rest(delta))
        if self._splitter is not None and self._splitter.over:
            self._splitter = None
        delta.text, delta.finish = "".join(pieces), self.finish
        if self._sources is not None:
            delta.pieces, delta.reasoning_pieces = self._sources.take(delta.text)
        ids_are_news = self._ids_are_news and bool(tokens)
        delta.is_news = bool(delta.text or delta.reasoning or delta.logprobs) or self.finish is not None or ids_are_news
        return delta if tokens or self.finish is not None else None

    def _shown(self, token: int, delta: Delta, source: int) -> str:
        """A token's text without the reasoning, which goes to the delta."""
        shown, splitter = self._text.push(token), self._splitter
        reasoning, text = "", shown
        if splitter is not None:
            before = splitter.thinking
            reasoning, text = splitter.push(shown)
            delta.reasoning += reasoning
            self.reasoning_tokens += before and splitter.thinking
        if self._sources is not None:
            self._sources.push(shown, source, reasoning, text, splitter.held if splitter else 0)
        return text

    def _rest(self, delta: Delta) -> str:
        """What was held back, at the end of the answer."""
        shown = text = self._text.flush()
        reasoning = ""
        if self._splitter is not None:
            parts = [self._splitter.push(text), self._splitter.finish()]
            reasoning = "".join(reasoning for reasoning, _ in parts)
            delta.reasoning += reasoning
            text = "".join(text for _, text in parts)
        if self._sources is not None:
            self._sources.push(shown, -1, reasoning, text, 0)
        text, met = self._stops.push(text)
        return text if met else text + self._stops.flush()


def failure(ending: Ending, params: SamplingParams) -> ApiError:
    """What a client gets for a request that ended so. params: what it had asked for."""
    if ending.finish is Finish.TIMEOUT:
        return ApiError(504, ending.message, code=ending.code)
    if ending.finish is Finish.ABORT:
        return ApiError(503, ending.message or "the request was aborted", code="aborted")
    if ending.code == INVALID_GRAMMAR and params.grammar is not None:  # it compiled, and could not be followed
        field = params.grammar.field
        return invalid(field, f"{field} cannot be used: {ending.message}", ending.code)
    return ApiError(500, ending.message, code="engine_error")


def require_whole(finish: str | None) -> None:
    """For APIs whose answers can't say that time ran out: raises ApiError for a `finish_reason` that does."""
    if finish == Finish.TIMEOUT:
        raise ApiError(504, "the answer was not finished in time", code=TimeoutLayer.TOTAL)


class Generator:
    """Runs a Generation. Use as `async with aclosing(generator.deltas())`: leaving it ends what still runs.

    Answers are numbered prompt by prompt: those to prompt p begin at p × copies.
    """

    def __init__(self, engine: Engine, detokenizer: Detokenizer, generation: Generation) -> None:
        self._engine, self._detokenizer, self._generation = engine, detokenizer, generation
        self._copies = max(generation.n, generation.best_of)
        self._answers: list[Answer] = []

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        """Pieces of all answers as they come; the last piece of each has a finish. Raises ApiError."""
        arrived = asyncio.Event()
        try:
            self._submit(arrived)
            open_answers, times = list(self._answers), self._engine.metrics.steps
            while open_answers:
                await arrived.wait()
                arrived.clear()
                for answer in list(open_answers):
                    begun = perf_counter()
                    delta = answer.advance()
                    times.detokenizing += perf_counter() - begun
                    if answer.finish is not None:
                        open_answers.remove(answer)
                        self._engine.close(answer.stream, answer.finish)
                    if delta is not None:
                        yield delta
        finally:
            for answer in self._answers:
                self._engine.close(answer.stream)

    def _submit(self, arrived: asyncio.Event) -> None:
        """All copies of a prompt one after the other: the core computes it for the first and lets the others wait for
        its blocks. Raises ApiError 400 for more answers than the engine ever holds at once."""
        generation, copies = self._generation, range(self._copies)
        wanted, most = len(generation.prompts) * len(copies), self._engine.max_queued
        if wanted > most:
            message = f"{wanted} answers are asked for in one request; this engine takes at most {most} at once"
            raise ApiError(400, message, param="n" if len(copies) > 1 else "prompt", code="too_many_answers")
        params = [generation.params_of(copy) for copy in copies]
        for prompt in generation.prompts:
            for copy in copies:
                stream = self._engine.submit(
                    prompt,
                    params[copy],
                    arrived,
                    priority=generation.priority,
                    salt=generation.salt,
                    timeouts=generation.timeouts,
                    tenant=generation.tenant,
                )
                proposers = self._engine.proposers
                self._answers.append(Answer(len(self._answers), stream, generation, self._detokenizer, proposers))

    @property
    def usage(self) -> Usage:
        """So far. A prompt counts once, however many answers it gets; so do its tokens that were cached before."""
        firsts = self._answers[:: self._copies]
        return Usage(
            sum(len(answer.stream.prompt_ids) for answer in firsts),
            sum(answer.tokens for answer in self._answers),
            sum(answer.stream.cached_tokens for answer in firsts),
            sum(answer.reasoning_tokens for answer in self._answers),
            *self._guessed(),
        )

    def _guessed(self) -> tuple[int | None, int | None]:
        """(accepted, rejected), as in Usage. How many were rejected is told with an answer's end."""
        if not self._engine.proposers:
            return None, None
        accepted = sum(answer.accepted_tokens for answer in self._answers)
        endings = [answer.stream.ending for answer in self._answers]
        told = [ending.drafted for ending in endings if ending is not None and ending.drafted >= 0]
        return accepted, max(0, sum(told) - accepted) if len(told) == len(endings) else None

    def prompt_of(self, index: int) -> int:
        """The number of the prompt that the client's answer `index` is to."""
        return index // self._generation.n

    def prompt_logprobs(self, index: int) -> list[PromptLogprobs]:
        """Of the prompt of the client's answer `index`, as far as it was scored."""
        return self._answers[self.prompt_of(index) * self._copies].stream.prompt_logprobs

    async def collect(self) -> tuple[list[Delta], Usage]:
        """All answers whole, in the order of the prompts; of each prompt the n best, if more were drawn."""
        whole = [Delta(index, "") for index in range(len(self._generation.prompts) * self._copies)]
        async with aclosing(self.deltas()) as deltas:
            async for delta in deltas:
                target = whole[delta.index]
                ending = self._answers[delta.index].stream.ending
                if delta.finish is Finish.TIMEOUT and ending is not None:
                    raise failure(ending, self._generation.params)  # it is not whole, and nothing of it was sent
                target.text += delta.text
                target.reasoning += delta.reasoning
                target.logprobs += delta.logprobs
                target.token_ids += delta.token_ids
                if delta.pieces is not None:
                    target.pieces = merged([*(target.pieces or ()), *delta.pieces])
                    target.reasoning_pieces = merged(
                        [*(target.reasoning_pieces or ()), *(delta.reasoning_pieces or ())]
                    )
                target.finish, target.stopped_by = delta.finish, delta.stopped_by
        if self._copies > self._generation.n:
            whole = self._best(whole)
        return whole, self.usage

    def _best(self, drawn: list[Delta]) -> list[Delta]:
        """The n answers to each prompt with the highest log-probability per token, best first (OpenAI's `best_of`),
        numbered as the client counts them."""
        kept: list[Delta] = []
        for first in range(0, len(drawn), self._copies):
            ranked = sorted(drawn[first : first + self._copies], key=_mean_logprob, reverse=True)
            kept += ranked[: self._generation.n]
        for index, answer in enumerate(kept):
            answer.index = index
        return kept


def _mean_logprob(answer: Delta) -> float:
    """Per token that counts, the one that ends the answer included; −inf for none."""
    values = [entry.logprob for entry in answer.logprobs]
    return sum(values) / len(values) if values else -math.inf
