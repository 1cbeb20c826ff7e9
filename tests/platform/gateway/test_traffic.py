"""What is kept of prompts: nothing without consent, nothing that tells who somebody is, and never too much."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisAway
from tursiops import secrets
from tursiops.gateway import traffic
from tursiops.gateway.masking import masked


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("write to jane.doe+x@mail.example.org now", "write to <email> now"),
        ("card 4111 1111 1111 1111, order 4111111111111112", "card <card>, order 4111111111111112"),
        ("IBAN DE89 3704 0044 0532 0130 00.", "IBAN <account>."),
        ("call +49 171 123 4567 or (415) 555-2671", "call <phone> or <phone>"),
        ("手机13812345678，身份证11010519491231002X", "手机<phone>，身份证<id>"),
        ("ts-abcdefghijklmnopqrstuvwxyz and password: hunter22!", "<key> and <key>"),
        ("Authorization: Bearer abc.def.ghi", "Authorization: <key>"),
        ("from 10.0.12.7 or 2001:db8:0:0:0:0:2:1", "from <address> or <address>"),
        ("我的卡号4111111111111111，４１１１１１１１１１１１１１１１吗", "我的卡号<card>，<card>吗"),
        ("密钥sk-abcdefghijklmnopqrst用完", "密钥<key>用完"),
        ("我的password: hunter22，密码：hunter22。口令 = hunter22", "我的<key>，<key>。<key>"),
        ("账号DE89370400440532013000在", "账号<account>在"),
        ("打+49 (171) 123-4567找我，主机2001:db8:0:0:0:0:2:1上", "打<phone>找我，主机<address>上"),
        ("密码是什么？第12345678901234567890号", None),
        ("the password should be long; 3.14159 and 2026-11-30 at 12:30:45", None),
        ("x = [1, 2, 3]; version 1.2.3; 1,234,567 tokens", None),
    ],
)
def test_masking_finds_what_tells_who_and_leaves_the_rest(text, wanted):
    assert masked(text) == (text if wanted is None else wanted)


@pytest.mark.parametrize("text", ["a", "a@", "0", "1.", "a:", "+" + "1" * 20 + "a ", "token  "])
def test_masking_never_holds_up_the_event_loop(text):
    began = time.process_time()
    masked(text * (traffic.LARGEST // len(text)))
    assert time.process_time() - began < 0.7


@pytest.mark.parametrize(
    ("fields", "row"),
    [
        ({"prompt": "a@b.cd says"}, {"text": "<email> says"}),
        ({"prompt": [1, 2]}, None),
        ({"messages": []}, None),
        ({"messages": [{"role": "user", "content": "hi"}, "x", {"role": "user"}, {"content": "x"}]},
         {"messages": [{"role": "user", "content": "hi"}]}),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "a@b.cd"}]}],
          "system": "be kind"},
         {"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "<email>"}]}),
    ],
)  # fmt: skip
def test_rows_are_texts_as_calibration_takes_them(fields, row):
    assert traffic.row_of(fields) == row


class Lists:
    """Redis' lists, as far as they are used."""

    def __init__(self, away: bool = False) -> None:
        self.rows: dict[str, list[bytes]] = {}
        self.expires: dict[str, int] = {}
        self.away = away

    def pipeline(self, transaction: bool) -> Any:
        return self

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def lpush(self, key: str, row: bytes) -> None:
        self.rows.setdefault(key, []).insert(0, row)

    def ltrim(self, key: str, first: int, last: int) -> None:
        self.rows[key] = self.rows[key][first : last + 1]

    def expire(self, key: str, seconds: int) -> None:
        self.expires[key] = seconds

    async def scan_iter(self, match: str, count: int) -> Any:
        for key in list(self.rows):
            yield key

    async def lrange(self, key: str, first: int, last: int) -> list[bytes]:
        assert last == -1
        return self.rows[key][first:]

    def lrem(self, key: str, count: int, row: bytes) -> None:
        assert count == -1
        del self.rows[key][len(self.rows[key]) - 1 - self.rows[key][::-1].index(row)]

    async def execute(self) -> None:
        if self.away:
            raise RedisAway("away")


def body(text: str) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}]}).encode()


def kept(lists: Lists, *bodies: bytes) -> None:
    async def send() -> None:
        sink = traffic.TrafficSink(lists)
        task = asyncio.create_task(sink.run())
        for each in bodies:
            sink.put("team", "key", each)
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(send())


def test_rows_are_sealed_bounded_and_expire(monkeypatch):
    monkeypatch.setattr(traffic, "EVERY_S", 0.0)
    monkeypatch.setattr(traffic, "MOST", 2)
    lists = Lists()
    kept(lists, body("one"), body("two"), body("a@b.cd"), b"x" * (traffic.LARGEST + 1))
    (sealed, _) = lists.rows["tursiops:traffic:team"]
    assert b"email" not in sealed
    told = json.loads(secrets.decrypt(traffic.LABEL, sealed))
    assert told["key"] == "key"
    assert told["row"] == {"messages": [{"role": "user", "content": "<email>"}]}
    assert lists.expires == {"tursiops:traffic:team": 30 * 86400}


def test_one_that_follows_at_once_is_left_out():
    lists = Lists()
    kept(lists, body("one"), body("two"))
    assert len(lists.rows["tursiops:traffic:team"]) == 1


def test_redis_away_stops_nothing(monkeypatch):
    monkeypatch.setattr(traffic, "EVERY_S", 0.0)
    lists = Lists(away=True)
    kept(lists, body("one"), body("two"))
    assert len(lists.rows["tursiops:traffic:team"]) == 2


def test_rows_go_when_they_are_old_though_the_list_s_expiry_was_renewed(monkeypatch):
    monkeypatch.setattr(traffic, "_TAIL", 2)
    lists, now = Lists(), int(time.time())
    ages = (0, 29, 31, 32, 33)
    young, *_ = rows = [secrets.fernet(traffic.LABEL).encrypt_at_time(b"{}", now - day * 86400) for day in ages]
    lists.rows = {"tursiops:traffic:idle": rows.copy(), "tursiops:traffic:other": [young, b"no token"]}
    kept(lists, b"{}")  # which has no text
    assert lists.rows == {"tursiops:traffic:idle": rows[:2], "tursiops:traffic:other": [young]}
