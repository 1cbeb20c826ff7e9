"""A newcomer's machine, for real: `up`, a model that answers in every way, and kill -9 of each process in turn.

What clients saw is kept in test-artifacts/kill-9.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import httpx2 as httpx
import psutil
import pytest

from tests.running import Running, until

pytestmark = [pytest.mark.slow, pytest.mark.embedded, pytest.mark.weights, pytest.mark.timeout(600)]
STREAMS = 4
MODEL = "smollm2"


@dataclass
class Platform:
    up: Running
    key: str
    login: tuple[str, str]
    outcomes: list[str] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)  # request ids of answers that ended well
    cut: set[str] = field(default_factory=set)  # request ids of answers that did not

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with Running(tmp_path_factory.mktemp("light") / "data", "--cpu") as up:
        up.wait_for("Logs follow", 400)
        login = up.wait_for(r"login +(\S+) / (\S+)").groups()
        yield Platform(up, up.wait_for(r"Bearer (ts-[\w-]{43})").group(1), login)


def test_it_ends_with_a_first_streamed_answer(platform):
    assert "Paris" in platform.up.wait_for(r"  > (.*)").group(1)
    assert platform.up.wait_for(r"first token after [\d.]+ s, then \d+ tokens/s")


def test_the_printed_curl_line_streams(platform):
    line = platform.up.wait_for(r"(curl -N .*)").group(1)
    said = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=120, check=True).stdout
    events = [json.loads(event[6:]) for event in said.split("\n\n") if event.startswith("data: {")]
    text = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
    assert "Paris" in text
    assert len(events) > 1  # what was said before, and this was, comes several tokens at a time
    assert said.rstrip().endswith("data: [DONE]")


def test_the_openai_sdk_lists_and_streams(platform):
    from openai import OpenAI

    client = OpenAI(base_url=f"{platform.up.url}/v1", api_key=platform.key)
    assert [model.id for model in client.models.list()] == [MODEL]
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[-1].usage.completion_tokens > 5


async def test_chat_over_a_websocket(platform):
    import websockets

    async with httpx.AsyncClient(base_url=platform.up.url) as client:
        await client.get("/api/v1/auth/session")
        csrf = {"X-CSRFToken": client.cookies["csrftoken"], "Referer": platform.up.url}
        username, password = platform.login
        body = {"username": username, "password": password}
        assert (await client.post("/api/v1/auth/login", json=body, headers=csrf)).status_code == 200
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    start = {
        "type": "start",
        "chat": str(uuid.uuid4()),
        "lane": "a",
        "model": MODEL,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "params": {"temperature": 0, "max_tokens": 40},
    }
    url = platform.up.url.replace("http", "ws") + "/ws/chat"
    frames = []
    async with websockets.connect(url, additional_headers={"Cookie": cookie}, origin=platform.up.url) as socket:
        await socket.send(json.dumps(start))
        while not frames or frames[-1]["type"] not in ("done", "error"):
            frames.append(json.loads(await asyncio.wait_for(socket.recv(), 60)))
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
    assert frames[0]["type"] == "started"
    assert "Paris" in "".join(frame.get("text", "") for frame in frames)
    assert frames[-1]["type"] == "done", frames[-1]
    assert frames[-1]["usage"]["completion_tokens"] > 5


# -- kill -9 ------------------------------------------------------------------------------------------------------


class Client(threading.Thread):
    """One streaming client. `outcome` is what it saw: done, an error event, a broken connection, a silent end."""

    def __init__(self, platform: Platform, number: int, most: int) -> None:
        super().__init__(daemon=True)
        self.platform, self.number, self.most = platform, number, most
        self.tokens, self.outcome, self.request_id = 0, "", ""

    def run(self) -> None:
        body = {
            "model": MODEL,
            "stream": True,
            "temperature": 0.7,
            "seed": self.number,
            "max_tokens": self.most,
            "ignore_eos": True,
            "messages": [{"role": "user", "content": f"Story number {self.number}: tell me of the sea."}],
        }
        url = f"{self.platform.up.url}/v1/chat/completions"
        try:
            with httpx.stream("POST", url, json=body, headers=self.platform.headers, timeout=90) as answer:
                self.request_id = answer.headers.get("x-request-id", "")
                self.outcome = self._read(answer)
        except httpx.HTTPError as error:
            self.outcome = f"connection broken ({type(error).__name__})"

    def _read(self, answer: httpx.Response) -> str:
        if answer.status_code != 200:
            answer.read()
            return f"status {answer.status_code}"
        reason = None
        for line in answer.iter_lines():
            if line == "data: [DONE]":
                return "done" if reason else "silent end"
            if not line.startswith("data: "):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                return f"error event ({event['error'].get('code')})"
            for choice in event["choices"]:
                self.tokens += 1
                reason = choice["finish_reason"] or reason
        return "silent end"


def engine_api(up: Running) -> list[psutil.Process]:
    return up.engines()[:1]


def engine_core(up: Running) -> list[psutil.Process]:
    """The process of an instance that holds the model."""
    return sorted(up.engines()[1:], key=lambda each: each.memory_info().rss)[-1:]


def supervised(name: str):
    return lambda up: [up.children()[name]]


VICTIMS = {  # who, whether answers survive it, and tokens of each: many where its return is to find them running
    "web": (supervised("web"), True, 50),
    "controller": (supervised("controller"), True, 120),
    "node": (supervised("node"), True, 120),
    "worker": (lambda up: [up.worker()], True, 50),
    "beat": (supervised("beat"), True, 50),
    "gateway": (supervised("gateway"), False, 120),
    "engine API": (engine_api, False, 120),
    "engine core": (engine_core, False, 120),
}


@pytest.mark.parametrize("victim", VICTIMS)
def test_kill_9_while_streams_run(platform, victim):
    find, answers_survive, most = VICTIMS[victim]
    until(lambda: can_chat(platform), 120, "an answer before the kill")
    until(lambda: find(platform.up), 60, f"{victim} there")
    clients = [Client(platform, number, most) for number in range(STREAMS)]
    for client in clients:
        client.start()
    until(lambda: all(client.tokens >= 3 or client.outcome for client in clients), 90, "tokens in every stream")
    (process,) = find(platform.up)
    process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    until(lambda: can_chat(platform), 180, f"an answer after the death of {victim}")
    back = time.monotonic() - killed
    for client in clients:
        client.join(120)
    seen = sorted(client.outcome for client in clients)
    platform.outcomes.append(f"| {victim} | {', '.join(seen)} | {back:.0f} s |")
    for client in clients:
        (platform.finished if client.outcome == "done" else platform.cut).add(client.request_id)
    assert all(client.outcome for client in clients), "a client waits for ever"
    assert "silent end" not in seen, "an answer was cut and looked whole"
    if answers_survive:
        assert seen == ["done"] * STREAMS


def can_chat(platform: Platform) -> bool:
    body = {"model": MODEL, "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]}
    url = f"{platform.up.url}/v1/chat/completions"
    with contextlib.suppress(httpx.HTTPError):
        answer = httpx.post(url, json=body, headers=platform.headers, timeout=30)
        if answer.status_code == 200:
            platform.finished.add(answer.headers["x-request-id"])
            return True
    return False


def test_after_all_that_everything_runs_and_no_usage_is_lost_or_doubled(platform, artifacts):
    table = ["| killed | what 4 streaming clients saw | next answer after |", "|---|---|---|", *platform.outcomes]
    (artifacts / "kill-9.md").write_text("\n".join(table) + "\n")
    print("\n".join(table))
    until(platform.up.answers, 60, "web")
    assert set(platform.up.children()) == {"broker", "web", "gateway", "controller", "node", "beat"}
    assert platform.finished
    until(lambda: not platform.finished - recorded(platform).keys(), 30, "usage of every finished answer")
    doubled = {request: count for request, count in recorded(platform).items() if count > 1}
    assert not doubled


def recorded(platform: Platform) -> dict[str, int]:
    """Usage rows by request id, as the database has them."""
    path = Path(platform.up.folder) / "tursiops.sqlite3"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)) as database:
        rows = database.execute("select request_id, count(*) from usage_usagerecord group by request_id").fetchall()
    return dict(rows)


def test_ctrl_c_ends_all_of_it(platform):
    family = [*platform.up.family(), *platform.up.engines()]
    assert len(family) > 6
    platform.up.process.send_signal(signal.SIGINT)
    assert platform.up.process.wait(90) == 0
    left = [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    assert not left
    assert "everything ended" in platform.up.output


def test_the_next_start_serves_again_and_adopts_the_engine_of_a_killed_one(platform):
    if platform.up.process.poll() is None:
        test_ctrl_c_ends_all_of_it(platform)
    with Running(platform.up.folder, "--cpu", port=platform.up.port) as second:
        second.wait_for("Logs follow", 300)
        print(f"second start: {time.monotonic() - second.began:.1f} s")
        assert "$TURSIOPS_KEY" in second.output  # the key of the first start is not shown again
        assert "login" not in second.output
        assert can_chat(platform)
        engine = second.engines()[0]
        second.process.kill()
        second.process.wait()
        with Running(platform.up.folder, "--cpu", port=platform.up.port) as third:
            third.wait_for("Logs follow", 300)
            print(f"start beside a living engine: {time.monotonic() - third.began:.1f} s")
            assert can_chat(platform)
            assert third.engines()[0] == engine  # pid and start time: the very same process
