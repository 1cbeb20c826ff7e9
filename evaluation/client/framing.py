"""HTTP/1.1 answers from bytes: the head, and a body that is chunked, of a length, or lasts until the end (RFC 9112)."""

from __future__ import annotations

from typing import Protocol

LONGEST_HEAD = 64 * 2**10  # bytes


class FramingError(ValueError):
    """The bytes are no HTTP/1.1. `code` begins the record's error."""

    code = "invalid_http"


class Head:
    """Status and headers (names in lower case, the last of several)."""

    __slots__ = ("headers", "keeps", "status")

    def __init__(self, data: bytes) -> None:
        """`data`: up to the empty line, without it. Raises FramingError."""
        lines = data.split(b"\r\n")
        first = lines[0]
        if not first.startswith(b"HTTP/1.") or not first[9:12].isdigit():
            raise FramingError(f"an answer does not begin with an HTTP/1.1 status line: {first[:80]!r}")
        self.status = int(first[9:12])
        self.headers: dict[bytes, bytes] = {}
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            self.headers[name.strip().lower()] = value.strip()
        connection = self.headers.get(b"connection", b"").lower()
        self.keeps = connection != b"close" and (first[5:8] == b"1.1" or connection == b"keep-alive")

    def number(self, name: bytes) -> float | None:
        """A header's number; None where there is none."""
        try:
            return float(self.headers[name])
        except (KeyError, ValueError):
            return None


class Body(Protocol):
    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """What of `data` is content, and whether it ends here. Raises FramingError."""

    def close(self) -> bool:
        """The connection has ended: whether the body is whole."""


def body_of(head: Head) -> Body:
    """Raises FramingError."""
    if head.headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        return Chunked()
    length = head.headers.get(b"content-length")
    if length is None:
        return Sized(0) if head.status in (204, 304) else UntilClose()
    if not length.isdigit():
        raise FramingError(f"Content-Length is no number: {length[:40]!r}")
    return Sized(int(length))


class Chunked:
    """Of each read nearly always one or more whole chunks; anything else comes out the same."""

    __slots__ = ("_need", "_rest", "_trailer")

    def __init__(self) -> None:
        self._rest = b""
        self._need = 0  # bytes that the current chunk still lacks, its CRLF among them
        self._trailer = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        if self._rest:
            data, self._rest = self._rest + data, b""
        position, end = 0, len(data)
        pieces: list[bytes] = []
        while position < end:
            need = self._need
            if need:
                content = min(need - 2, end - position)
                if content > 0:
                    pieces.append(data[position : position + content])
                taken = min(need, end - position)
                position += taken
                self._need = need - taken
                continue
            line_end = data.find(b"\r\n", position)
            if line_end < 0:
                if end - position > LONGEST_HEAD:
                    raise FramingError("a chunk's size line does not end")
                self._rest = data[position:]
                break
            line = data[position:line_end]
            position = line_end + 2
            if self._trailer:
                if not line:
                    return b"".join(pieces), True
                continue
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                size = -1
            if size < 0:
                raise FramingError(f"a chunk begins with no size: {line[:40]!r}")
            if size:
                self._need = size + 2
            else:
                self._trailer = True
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), False

    def close(self) -> bool:
        return False


class Sized:
    __slots__ = ("_need",)

    def __init__(self, length: int) -> None:
        self._need = length

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        content = data[: self._need]
        self._need -= len(content)
        return content, self._need == 0

    def close(self) -> bool:
        return self._need == 0


class UntilClose:
    __slots__ = ()

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        return data, False

    def close(self) -> bool:
        return True
