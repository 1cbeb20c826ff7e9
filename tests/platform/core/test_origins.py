"""Who may open a websocket, asked directly and through the gateway in front of the real web process."""

import asyncio

import aiohttp
import pytest
from tursiops.core.origins import may_open

from tests.gateway_bench import bench, config, redis
from tests.websockets import web_process

__all__ = ["bench", "config", "redis"]


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("http://ai.example.com", "ai.example.com", True),
        ("https://ai.example.com", "ai.example.com", True),  # TLS ends at a proxy that keeps the host
        ("http://AI.example.com:8000", "ai.example.com:8000", True),
        ("http://h:80", "h", True),
        ("https://h", "h:443", True),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("http://evil.example", "ai.example.com", False),
        ("http://ai.example.com.evil.example", "ai.example.com", False),
        ("http://localhost:3000", "localhost:8000", False),  # another program's page on the same machine
        ("http://h:443", "h", False),
        ("null", "h", False),
        ("", "h", False),
        ("http://[::1", "h", False),
        ("https://ops.example.com", "10.0.0.1:8000", True),  # named in the settings
        ("https://a.wild.example.com", "10.0.0.1:8000", True),
        ("http://ops.example.com", "10.0.0.1:8000", False),  # the right host by the wrong scheme
    ],
)
def test_origin_is_the_own_address_or_a_trusted_one(settings, origin, host, allowed):
    settings.CSRF_TRUSTED_ORIGINS = ["https://ops.example.com", "https://*.wild.example.com"]
    assert settings.ALLOWED_HOSTS in (["*"], ["*", "testserver"])
    assert may_open([origin], [host]) is allowed


def test_programs_send_no_origin_and_headers_come_once():
    assert may_open([], ["h"])
    assert not may_open([], [])
    assert not may_open(["http://h", "http://h"], ["h"])
    assert not may_open(["http://h"], ["h", "h"])


def test_host_must_be_one_that_we_answer_to(settings):
    settings.ALLOWED_HOSTS = ["ai.example.com"]
    assert may_open(["http://ai.example.com"], ["ai.example.com"])
    assert not may_open(["http://rebound.example"], ["rebound.example"])


@pytest.fixture
async def web(bench, config):
    """The real web application behind the gateway of the bench."""
    async with web_process(config.web_socket):
        yield bench


async def closing_code(bench, path, origin):
    async with bench.session.ws_connect(bench.url + path, origin=origin) as socket:
        message = await asyncio.wait_for(socket.receive(), 5)
        assert message.type is aiohttp.WSMsgType.CLOSE
        return socket.close_code


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/ws/live", "/ws/chat", "/ws/nonsense"])
async def test_foreign_page_is_refused_through_the_gateway(web, path):
    for foreign in ("http://evil.example", "http://127.0.0.1:1", "null"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await web.session.ws_connect(web.url + path, origin=foreign)
        assert refused.value.status == 403, foreign


@pytest.mark.django_db
async def test_own_page_and_programs_pass_through_the_gateway(web):
    """As strangers, so that the consumer itself answers: past the check."""
    for origin in (web.url, None):
        assert await closing_code(web, "/ws/live", origin) == 4401


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/ws/nonsense", "/ws/live/more", "/nowhere", "/ws/" + "x" * 1000])
async def test_unknown_path_is_closed_with_a_code_and_one_line(web, caplog, path):
    caplog.clear()
    assert await closing_code(web, path, web.url) == 4404
    ours = [record for record in caplog.records if "websocket.unknown_path" in record.getMessage()]
    assert [record.levelname for record in ours] == ["INFO"]
    assert len(ours[0].getMessage()) < 600
    assert [record for record in caplog.records if record.exc_info or record.levelname in ("ERROR", "WARNING")] == []
