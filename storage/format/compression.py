"""Compressed bodies: the system flag's bit 0 says that a body is, bits 8 to 10 say how.

    bits 8-10  container
    0          zlib, as old clients write it
    1          LZ4 frame
    2          zstd frame
    3          zlib stream (RFC 1950)
    4-7        not assigned

The store keeps bodies as they come; clients compress and decompress.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, Literal

Compression = Literal["none", "zlib", "lz4", "zstd"]

COMPRESSED: Final = 0x1
_CODE_MASK: Final = 0x700
_ZSTD_PIECE: Final = 512  # each 4 bytes of it may stand for 128 KiB
_CODES: Final[dict[str, int]] = {"lz4": 0x100, "zstd": 0x200, "zlib": 0x300}
_NAMES: Final[dict[int, Compression]] = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}


def compression_of(sys_flag: int) -> Compression:
    """Name the compression of a body; ValueError for a code that is not assigned."""
    if not sys_flag & COMPRESSED:
        return "none"
    try:
        return _NAMES[sys_flag & _CODE_MASK]
    except KeyError:
        raise ValueError(f"system flag {sys_flag:#x}: no compression has this code") from None


def compress(body: bytes, compression: Compression, *, level: int = 5) -> tuple[bytes, int]:
    """Compress ``body``; return it with the bits to set in the system flag."""
    if compression == "none":
        return body, 0
    if compression == "zlib":
        packed = zlib.compress(body, level)
    elif compression == "lz4":
        import lz4.frame

        packed = lz4.frame.compress(body)
    else:
        import zstandard

        packed = zstandard.ZstdCompressor(level=level).compress(body)
    return packed, COMPRESSED | _CODES[compression]


def decompress(body: bytes, sys_flag: int, *, size_max: int | None = None) -> bytes:
    """Undo what the system flag says was done to ``body``; ValueError if it cannot be undone.

    With ``size_max`` also if more bytes than that would come of it, and hardly more are made.
    """
    compression = compression_of(sys_flag)
    if compression == "none":
        return body
    try:
        if size_max is not None:
            return _decompress_up_to(size_max, body, compression)
        if compression == "zlib":
            return zlib.decompress(body)
        if compression == "lz4":
            import lz4.frame

            return bytes(lz4.frame.decompress(body))
        import zstandard

        # Java streams into the frame, which then lacks the content size: decompress as a stream, too.
        stream = zstandard.ZstdDecompressor().decompressobj()
        unpacked = stream.decompress(body)
        if not stream.eof:
            raise ValueError("it ends too early")
        return unpacked
    except _TooLong:
        raise ValueError(f"the body decompresses to more than {size_max} bytes") from None
    except Exception as error:
        raise ValueError(f"the body is no {compression} stream: {error}") from error


class _TooLong(Exception):
    pass


def _decompress_up_to(size_max: int, body: bytes, compression: Compression) -> bytes:
    stream: Any
    if compression == "zstd":
        import zstandard

        stream = zstandard.ZstdDecompressor().decompressobj()
        unpacked = bytearray()
        for position in range(0, len(body), _ZSTD_PIECE):
            unpacked += stream.decompress(body[position : position + _ZSTD_PIECE])
            if stream.eof or len(unpacked) > size_max:
                break
    elif compression == "lz4":
        import lz4.frame

        stream = lz4.frame.LZ4FrameDecompressor()
        unpacked = stream.decompress(body, size_max + 1)
    else:
        stream = zlib.decompressobj()
        unpacked = stream.decompress(body, size_max + 1)
    if len(unpacked) > size_max:
        raise _TooLong
    if not stream.eof:
        raise ValueError("it ends too early")
    return bytes(unpacked)
