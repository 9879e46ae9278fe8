"""HTTP/2 frames made by hand: what no client library sends."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0x0, 0x1, 0x3, 0x4, 0x6, 0x9
END_HEADERS = 0x4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MORE_THAN_TWO_GIB = (1 << 31) + 5


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    """Return one frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def field(name: str, value: str) -> bytes:
    """Return a header field as HPACK writes one that is kept in no table; shorter than 127 bytes."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call_headers(path: str) -> bytes:
    """Return the header block that begins a call."""
    fields = {
        ":method": "POST", ":scheme": "http", ":path": path, ":authority": "x",
        "content-type": "application/grpc", "te": "trailers",
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

    def begin_call(self) -> tuple[int, bytes]:
        """Return a new stream, and the frame that begins a call on it."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        return stream, frame(HEADERS, self._headers, flags=END_HEADERS, stream=stream)


def message_head(length: int) -> bytes:
    """Return what is in front of a message of a call: not compressed, so many bytes."""
    return b"\0" + struct.pack(">I", length)
