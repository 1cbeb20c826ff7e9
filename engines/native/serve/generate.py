"""From tokens to what a client gets: text cut at stop strings, logprobs, the reason of the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from engines.native.ipc import PromptLogprobs, TopTokens
from engines.native.request import Finish, SamplingParams
from engines.native.serve.detokenize import Detokenizer
from engines.native.serve.engine import Engine
from engines.native.serve.errors import ApiError
from engines.native.serve.stops import StopMatcher
from engines.native.serve.stream import Stream


@dataclass(frozen=True, slots=True)
class ThinkTokens:
    """Ids of <think> and </think>, where a model has them. Stop strings apply to the answer, not to the thinking."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Generation:
    """What an endpoint asks of the engine: one or more prompts, answered alike."""

    prompts: list[list[int]]
    params: SamplingParams
    stops: list[str]
    priority: int = 0
    salt: str = ""
    think: ThinkTokens | None = None


@dataclass(slots=True)
class TokenLogprob:
    token: int
    logprob: float
    top: TopTokens | None


@dataclass(slots=True)
class Delta:
    """The next piece of one answer. finish: `stop` or `length` with the last piece."""

    index: int
    text: str
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: Finish | None = None


@dataclass(slots=True)
class Usage:
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class Answer:
    """One prompt's answer while it grows."""

    def __init__(self, index: int, stream: Stream, generation: Generation, detokenizer: Detokenizer) -> None:
        self.index, self.stream = index, stream
        self.tokens = 0  # counted to the client: up to the one that completes a stop string
        self.finish: Finish | None = None
        self._min_tokens = generation.params.min_tokens
        self._stop_ids = frozenset(generation.params.stop_token_ids)
        self._text = detokenizer.stream()
        self._stops = StopMatcher(generation.stops)
        self._think = generation.think
        self._thinking = generation.think is not None and _opens(stream.prompt_ids, generation.think)

    def advance(self) -> Delta | None:
        """Take in what came. None if nothing did. Raises ApiError where the request failed."""
        tokens, logprobs, top = self.stream.take()
        ending = self.stream.ending
        pieces: list[str] = []
        delta = Delta(self.index, "")
        for place, token in enumerate(tokens):
            self.tokens += 1
            if logprobs:
                delta.logprobs.append(TokenLogprob(token, logprobs[place], top[place]))
            last = ending is not None and ending.finish is Finish.STOP and place == len(tokens) - 1
            if last and token in self._stop_ids:
                break  # the token that ends an answer is no part of it
            text, met = self._match(token, self._text.push(token))
            pieces.append(text)
            if met:
                self.finish = Finish.STOP
                break
        if self.finish is None and ending is not None:
            if ending.finish not in (Finish.STOP, Finish.LENGTH):
                raise _failure(ending.finish, ending.message)
            self.finish = ending.finish
            tail, met = self._stops.push(self._text.flush())
            pieces += [tail] if met else [tail, self._stops.flush()]
        delta.text, delta.finish = "".join(pieces), self.finish
        return delta if tokens or self.finish is not None else None

    def _match(self, token: int, text: str) -> tuple[str, bool]:
        if self._think is not None and token in (self._think.begin, self._think.end):
            self._thinking = token == self._think.begin
            return self._stops.flush() + text, False  # a tag is no answer, and no stop string reaches across it
        if self._thinking or self.tokens < self._min_tokens:
            return text, False
        return self._stops.push(text)


def _opens(prompt_ids: list[int], think: ThinkTokens) -> bool:
    """Whether the prompt ends inside an open thinking part."""
    for token in reversed(prompt_ids):
        if token in (think.begin, think.end):
            return token == think.begin
    return False


def _failure(finish: Finish, message: str) -> ApiError:
    if finish is Finish.TIMEOUT:
        return ApiError(504, message, code="timeout")
    if finish is Finish.ABORT:
        return ApiError(503, message or "the request was aborted", code="aborted")
    return ApiError(500, message, code="engine_error")


class Generator:
    """Runs a Generation. Use as `async with aclosing(generator.deltas())`: leaving it ends what still runs."""

    def __init__(self, engine: Engine, detokenizer: Detokenizer, generation: Generation) -> None:
        self._engine, self._detokenizer, self._generation = engine, detokenizer, generation
        self._answers: list[Answer] = []
        self.usage = Usage()

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        """Pieces of all answers as they come; the last piece of each has a finish. Raises ApiError."""
        arrived = asyncio.Event()
        generation = self._generation
        try:
            for index, prompt in enumerate(generation.prompts):
                stream = self._engine.submit(
                    prompt, generation.params, arrived, priority=generation.priority, salt=generation.salt
                )
                self._answers.append(Answer(index, stream, generation, self._detokenizer))
            open_answers = list(self._answers)
            while open_answers:
                await arrived.wait()
                arrived.clear()
                for answer in list(open_answers):
                    delta = answer.advance()
                    if answer.finish is not None:
                        open_answers.remove(answer)
                        self._engine.close(answer.stream, answer.finish)
                    if delta is not None:
                        yield delta
        finally:
            self._count()
            for answer in self._answers:
                self._engine.close(answer.stream)

    def _count(self) -> None:
        self.usage = Usage(
            sum(len(answer.stream.prompt_ids) for answer in self._answers),
            sum(answer.tokens for answer in self._answers),
            sum(answer.stream.cached_tokens for answer in self._answers),
        )

    def prompt_logprobs(self, index: int) -> list[PromptLogprobs]:
        return self._answers[index].stream.prompt_logprobs

    async def collect(self) -> tuple[list[Delta], Usage]:
        """All answers whole, in the order of the prompts."""
        whole = [Delta(index, "") for index in range(len(self._generation.prompts))]
        async with aclosing(self.deltas()) as deltas:
            async for delta in deltas:
                target = whole[delta.index]
                target.text += delta.text
                target.logprobs += delta.logprobs
                target.finish = delta.finish
        return whole, self.usage
