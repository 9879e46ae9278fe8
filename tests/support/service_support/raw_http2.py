"""HTTP/2 frames made by hand: what no client library sends."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0x0, 0x1, 0x3, 0x4, 0x6, 0x9
END_HEADERS = 0x4
ACK = 0x1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MORE_THAN_TWO_GIB = (1 << 31) + 5


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    """Return one frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def field(name: str, value: str) -> bytes:
    """Return a header field as HPACK writes one that is kept in no table; shorter than 127 bytes."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call_headers(path: str, **more: str) -> bytes:
    """Return the header block that begins a call; underscores of names are hyphens."""
    fields = {
        ":method": "POST", ":scheme": "http", ":path": path, ":authority": "x",
        "content-type": "application/grpc", "te": "trailers",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }  # fmt: skip
    return b"".join(field(name, value) for name, value in fields.items())


class RawConnection:
    """A connection that has said hello; a context manager."""

    def __init__(self, address: str, path: str = "/penstock.v1.Writer/Produce") -> None:
        host, _, port = address.rpartition(":")
        self._headers = call_headers(path)
        self._next_stream = 1
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.send(PREFACE + frame(SETTINGS))

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes, timeout_s: float = 5.0) -> bool:
        """Send all of it; False if the server has closed the connection, or reads no more."""
        self.socket.settimeout(timeout_s)
        with suppress(OSError):
            self.socket.sendall(data)
            return True
        return False

    def stay(self) -> None:
        """Answer in a thread what has to be answered for the connection to stay, and read nothing of the calls."""
        self.socket.settimeout(None)
        threading.Thread(target=self._stay, daemon=True).start()

    def _stay(self) -> None:
        with suppress(OSError, ValueError), self.socket.makefile("rb") as come:
            while head := come.read(9):
                length, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
                payload = come.read(length)
                if kind in (SETTINGS, PING) and not flags & ACK:
                    self.socket.sendall(frame(kind, payload if kind == PING else b"", flags=ACK))

    def begin_call(self, headers: bytes | None = None) -> tuple[int, bytes]:
        """Return a new stream, and the frame that begins a call on it."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        return stream, frame(HEADERS, headers or self._headers, flags=END_HEADERS, stream=stream)


def message_head(length: int) -> bytes:
    """Return what is in front of a message of a call: not compressed, so many bytes."""
    return b"\0" + struct.pack(">I", length)
