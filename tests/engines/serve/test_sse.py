"""Clients that do not read."""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import web

from engines.native.serve.sse import EventStream, SlowReaders


async def test_client_that_does_not_read_is_cut_off_and_its_handler_ends() -> None:
    readers = SlowReaders(limit_s=0.3)
    ended = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        events = EventStream(request, readers)
        try:
            while True:
                await events.send({"text": "x" * 10_000})
        finally:
            ended.set()

    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    watch = asyncio.create_task(readers.run())
    reader, writer = await asyncio.open_connection(*runner.addresses[0], limit=1024)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readline()  # begins to read, then stops
        await asyncio.wait_for(ended.wait(), 10)
    finally:
        watch.cancel()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        await runner.cleanup()


async def test_client_that_reads_is_left_alone() -> None:
    readers = SlowReaders(limit_s=0.2)
    watch = asyncio.create_task(readers.run())

    async def handler(request: web.Request) -> web.StreamResponse:
        events = EventStream(request, readers)
        for number in range(8):
            await events.send({"number": number})
            await asyncio.sleep(0.1)
        return await events.done()

    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    reader, writer = await asyncio.open_connection(*runner.addresses[0])
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 10)
        assert b'data: {"number":7}' in answer
        assert answer.rstrip().endswith(b"0")
        assert b"data: [DONE]" in answer
    finally:
        watch.cancel()
        writer.close()
        await runner.cleanup()
