"""The first question, against a small server that speaks the gateway's language."""

import http.server
import json
import shlex
import threading

import pytest
from tursiops.supervisor import ask


@pytest.fixture
def serve():
    servers = []

    def start(status: int, body: bytes) -> int:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert request["model"] == "small"
                assert request["stream"] is True
                assert self.headers["Authorization"] == "Bearer ts-x"
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                return None

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server.server_address[1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def event(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


def test_pieces_come_before_the_answer(serve):
    port = serve(200, event("A dolphin ") + b": ping\n\n" + event("swims.") + b"data: [DONE]\n\n")
    *pieces, answer = list(ask.ask("127.0.0.1", port, "small", "ts-x"))
    assert pieces == ["A dolphin ", "swims."]
    assert answer.text == "A dolphin swims."
    assert answer.first_token_s > 0


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b'{"error": {"message": "unknown key"}}', "unknown key"),
        (200, event("A") + b'data: {"error": {"message": "engine gone"}}\n\n', "engine gone"),
        (200, b"data: [DONE]\n\n", "empty"),
    ],
)
def test_failures_are_told(serve, status, body, said):
    port = serve(status, body)
    with pytest.raises(ValueError, match=said):
        list(ask.ask("127.0.0.1", port, "small", "ts-x"))


def test_the_curl_line_is_one_shell_command():
    words = shlex.split(ask.curl("http://127.0.0.1:8000", "small", "ts-x"))
    assert words[:3] == ["curl", "-N", "http://127.0.0.1:8000/v1/chat/completions"]
    assert json.loads(words[-1])["model"] == "small"


def test_nobody_there_is_status_0():
    assert ask.status_of("127.0.0.1", 1, "/") == 0
