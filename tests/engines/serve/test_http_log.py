"""Bytes that are no HTTP are refused, and leave nothing in the log."""

from __future__ import annotations

import socket

import pytest

from tests.engines.instances import Running

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
NO_HTTP = {
    "a header with a null byte": b"GET /health HTTP/1.1\r\nHost: x\r\nX-Probe: \x00\r\n\r\n",
    "a length that is no number": HEAD + b"Content-Length: five\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    "length and chunks": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a header without end": b"GET /health HTTP/1.1\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n",
    "a line that is no request": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "a version that is none": b"GET /health HTTP/9.x\r\n\r\n",
}


@pytest.mark.parametrize("sent", NO_HTTP.values(), ids=list(NO_HTTP))
def test_bytes_that_are_no_http(instance: Running, sent: bytes) -> None:
    before = instance.run_dir.log_path.read_text()
    with socket.create_connection(("127.0.0.1", int(instance.url.rsplit(":", 1)[1])), timeout=10) as raw:
        raw.sendall(sent)
        answer = raw.recv(200)
    assert answer.startswith(b"HTTP/1.") or answer == b""
    assert b" 400 " in answer.split(b"\r\n")[0] or answer == b""
    assert instance.client.get(instance.url + "/health").status_code == 200
    assert instance.run_dir.log_path.read_text() == before
