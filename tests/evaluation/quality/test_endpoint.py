"""Where a quality run's requests may go."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from evaluation.quality.endpoint import Connection, EndpointError
from evaluation.quality.suite import read_suite
from evaluation.schema import Endpoint
from evaluation.spec_errors import SpecError


async def test_a_redirect_is_refused_and_not_followed() -> None:
    reached: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        reached.append(request.path)
        if request.path != "/inside":
            raise web.HTTPTemporaryRedirect("/inside")
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    async with Connection(Endpoint(url=str(server.make_url("")), model="m"), 1) as asked:
        with pytest.raises(EndpointError, match="307, a redirect") as caught:
            await asked.post("/v1/completions", {"prompt": "x"})
    await server.close()
    assert (caught.value.code, caught.value.fatal) == ("endpoint_refused", True)
    assert reached == ["/v1/completions"]


def test_a_suite_keeps_no_password() -> None:
    endpoint = {"url": "http://me:secret@host"}
    with pytest.raises(SpecError, match=r"\$\.judge\.url: holds a user name"):
        read_suite({"tasks": [{"kind": "rules", "name": "a", "data": "x"}], "judge": endpoint})
