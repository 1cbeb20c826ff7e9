"""A small engine over HTTP with a language model whose every probability is known: tokens are bytes, and what follows a
byte depends on it alone. Answers to chats are what the test says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from aiohttp import web

BOS = 256
VOCAB = 257


def table(seed: int = 0, noise: float = 0.0) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Log-probabilities [VOCAB, VOCAB] of the token after each; `noise` moves the logits of a second version."""
    logits = np.random.default_rng(seed).normal(0, 2, (VOCAB, VOCAB))
    logits += noise * np.random.default_rng(seed + 1).normal(0, 1, (VOCAB, VOCAB))
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


Talk = Callable[[list[dict[str, Any]], dict[str, Any]], str]


class Bigram:
    """`told`: bodies of what was asked. `fault`: what is wrong with it, by name."""

    def __init__(self, talk: Talk | None = None, *, seed: int = 0, noise: float = 0.0, ids: bool = True) -> None:
        self.rows = table(seed, noise)
        self.talk = talk or (lambda messages, body: "")
        self.ids = ids  # whether prompt_logprobs and token ids are told
        self.most_top = 20
        self.fault = ""
        self.adds_bos = True
        self.delay_s = 0.0
        self.told: list[dict[str, Any]] = []
        self.url = ""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/detokenize", self._detokenize)
        app.router.add_get("/tokenizer_info", self._info)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "bigram"}]})

    async def _info(self, request: web.Request) -> web.Response:
        return web.json_response({"eos_token": "\n", "bos_token": None, "chat_template": None})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        first = [BOS] if body.get("add_special_tokens", True) and self.adds_bos else []
        return web.json_response({"tokens": [*first, *body["prompt"].encode()]})

    async def _detokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response(
            {"prompt": bytes(each for each in body["tokens"] if each < BOS).decode("utf-8", "replace")}
        )

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.told.append(body)
        await asyncio.sleep(self.delay_s)
        if self.fault in ("400", "500"):
            return web.json_response({"error": {"message": "as told"}}, status=int(self.fault))
        text = self.talk(body["messages"], body)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": {"completion_tokens": len(text)}})

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.told.append(body)
        await asyncio.sleep(self.delay_s)
        if self.fault in ("400", "500"):
            return web.json_response({"error": {"message": "as told"}}, status=int(self.fault))
        top = body.get("prompt_logprobs") or 0
        if (VOCAB if top < 0 else top) > self.most_top:
            return web.json_response({"error": {"message": f"at most {self.most_top}"}}, status=400)
        prompts = body["prompt"]
        if isinstance(prompts, str):
            prompts = [list(prompts.encode())]
        choices = [self._choice(at, list(ids), body) for at, ids in enumerate(prompts)]
        return web.json_response({"choices": choices[::-1], "usage": {}})

    def _choice(self, index: int, ids: list[int], body: dict[str, Any]) -> dict[str, Any]:
        drawn: list[int] = []
        for _ in range(body.get("max_tokens", 16)):
            drawn.append(int(self.rows[(ids + drawn)[-1]].argmax()))
        if self.fault == "bos":
            ids = [BOS, *ids]
        whole = [*ids, *drawn] if body.get("echo") else drawn
        choice: dict[str, Any] = {"index": index, "text": bytes(t for t in whole if t < BOS).decode("latin-1")}
        choice["finish_reason"] = "length"
        if body.get("echo") and body.get("logprobs") is not None:
            choice["logprobs"] = self._legacy(whole, body["logprobs"])
        if self.ids and body.get("return_token_ids"):
            choice["token_ids"] = drawn
        if self.ids and body.get("prompt_logprobs") is not None:
            choice["prompt_logprobs"] = [None, *(self._entry(*pair, body["prompt_logprobs"]) for pair in _pairs(ids))]
        return choice

    def _best(self, before: int, count: int) -> list[int]:
        return np.argsort(-self.rows[before])[: VOCAB if count < 0 else count].tolist()

    def _entry(self, before: int, token: int, count: int) -> dict[str, Any]:
        names = [*self._best(before, count), token]
        return {str(name): {"logprob": float(self.rows[before, name]), "decoded_token": chr(name)} for name in names}

    def _legacy(self, whole: list[int], count: int) -> dict[str, Any]:
        if self.fault == "new_style":
            return {"content": [{"token": chr(token), "logprob": -1.0} for token in whole]}
        own: list[float | None] = [None, *(float(self.rows[pair]) for pair in _pairs(whole))]
        top: list[dict[str, float] | None] = [None]
        for before, token in _pairs(whole):
            top.append({chr(name): float(self.rows[before, name]) for name in [*self._best(before, count), token]})
        return {"tokens": [chr(token) for token in whole], "token_logprobs": own, "top_logprobs": top}


def _pairs(ids: list[int]) -> list[tuple[int, int]]:
    return list(pairwise(ids))


@contextmanager
def served(*engines: Bigram) -> Iterator[None]:
    """Each on a port of its own, in a thread, so that a child process or the test's own loop can ask it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runners = [asyncio.run_coroutine_threadsafe(_start(engine), loop).result(10) for engine in engines]
    try:
        yield
    finally:
        for runner in runners:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _start(engine: Bigram) -> web.AppRunner:
    runner = web.AppRunner(engine.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    engine.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    return runner
