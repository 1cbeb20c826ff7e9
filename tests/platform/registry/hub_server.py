"""A local server that speaks as much of the hub's API as an import needs, and can be told to misbehave."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "5b3f2d6a" * 5


@dataclass
class Hub:
    """State of the server. `files` is the one repository's content; the rest is how it behaves."""

    repository: str = "acme/tiny"
    files: dict[str, bytes] = field(default_factory=dict)
    license: str = "apache-2.0"
    token: str = ""  # needed where set
    cut_after: list[int] = field(default_factory=list)  # per download in turn: bytes after which the line is cut
    damage: set[str] = field(default_factory=set)  # files that arrive with another content
    ignore_ranges: bool = False
    slow_s: float = 0.0  # before each 16 KB
    redirect_to: str = ""  # downloads go there instead
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    endpoint: str = ""

    def downloads(self) -> list[tuple[str, str]]:
        """(file name, Range header or "") of each download in order."""
        return [
            (path.rpartition("/")[2], headers.get("range", ""))
            for path, headers in self.requests
            if "/resolve/" in path
        ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        hub: Hub = self.server.hub
        path = unquote(urlsplit(self.path).path)
        hub.requests.append((path, {name.lower(): value for name, value in self.headers.items()}))
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._json(401, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
        if path.startswith("/api/models/"):
            return self._listing(hub, path.removeprefix("/api/models/"))
        repository, _, rest = path.lstrip("/").partition("/resolve/")
        commit, _, name = rest.partition("/")
        if hub.redirect_to:
            return self._json(302, {}, {"Location": hub.redirect_to + self.path})
        if (repository, commit) != (hub.repository, COMMIT) or name not in hub.files:
            return self._json(404, {"error": "not found"}, {"X-Error-Code": "EntryNotFound"})
        return self._download(hub, name)

    def _listing(self, hub: Hub, rest: str) -> None:
        repository, _, revision = rest.partition("/revision/")
        if repository != hub.repository:
            return self._json(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        if revision not in ("main", COMMIT):
            return self._json(404, {"error": "Revision not found"}, {"X-Error-Code": "RevisionNotFound"})
        siblings = [self._sibling(name, content) for name, content in hub.files.items()]
        return self._json(
            200, {"id": repository, "sha": COMMIT, "siblings": siblings, "cardData": {"license": hub.license}}
        )

    @staticmethod
    def _sibling(name: str, content: bytes) -> dict[str, Any]:
        blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
        row: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": blob}
        if name.endswith((".safetensors", ".gguf")):
            row["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
        return row

    def _download(self, hub: Hub, name: str) -> None:
        content = hub.files[name]
        if name in hub.damage:
            content = content[:-1] + bytes([content[-1] ^ 1])
        start = 0
        asked = self.headers.get("Range", "")
        if asked and not hub.ignore_ranges:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        if hub.cut_after:
            self.wfile.write(body[: hub.cut_after.pop(0)])
            self.close_connection = True
            return
        for offset in range(0, len(body), 16384):
            time.sleep(hub.slow_s)
            self.wfile.write(body[offset : offset + 16384])

    def _json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def start(hub: Hub) -> ThreadingHTTPServer:
    """Serves `hub` on a free port of 127.0.0.1 until `shutdown()`; sets `hub.endpoint`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.hub = hub  # type: ignore[attr-defined]
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
    return server
