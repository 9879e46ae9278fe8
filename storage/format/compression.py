"""Compressed bodies: the system flag's bit 0 says that a body is, bits 8 to 10 say how.

    bits 8-10  container
    0          zlib, as old clients write it; gzip, as gRPC clients do
    1          LZ4 frame
    2          zstd frame
    3          zlib stream (RFC 1950)
    4-7        not assigned

A body of code 0 or 3 that begins with gzip's magic is gzip. The store keeps bodies as they come;
clients compress and decompress. Nobody here unpacks more than UNPACKED_SIZE_MAX bytes of one body.
"""

from __future__ import annotations

import zlib
from typing import Final, Literal

from storage.errors import UnreadableBody

Compression = Literal["none", "zlib", "lz4", "zstd"]

COMPRESSED: Final = 0x1
GZIP_MAGIC: Final = b"\x1f\x8b"
UNPACKED_SIZE_MAX: Final = 32 << 20
_CODE_MASK: Final = 0x700
COMPRESSION_BITS: Final = COMPRESSED | _CODE_MASK
_ZSTD_PIECE: Final = 512  # each 4 bytes of it may stand for 128 KiB
_GZIP_BITS: Final = 31  # zlib: a gzip header, and the largest window
_GZIP_PIECE: Final = 4_096  # copied once more for each member that ends in it
_GZIP_MEMBERS_MAX: Final = 10_000  # an empty one has 20 bytes, and takes 20 µs
_CODES: Final[dict[str, int]] = {"lz4": 0x100, "zstd": 0x200, "zlib": 0x300}
_NAMES: Final[dict[int, Compression]] = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}


def compression_of(sys_flag: int) -> Compression:
    """Name the compression of a body. Raises UnreadableBody for a code that is not assigned."""
    if not sys_flag & COMPRESSED:
        return "none"
    try:
        return _NAMES[sys_flag & _CODE_MASK]
    except KeyError:
        raise UnreadableBody(f"no compression has the code of system flag {sys_flag:#x}") from None


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


def decompress(body: bytes, sys_flag: int, *, size_max: int = UNPACKED_SIZE_MAX) -> bytes:
    """Undo what the system flag says was done to ``body``; an empty body stays empty.

    Raises UnreadableBody if it cannot be undone, or if more than ``size_max`` bytes come of it.
    Hardly more are made.
    """
    compression = compression_of(sys_flag)
    if compression == "none" or not body:
        return body
    container = "gzip" if compression == "zlib" and body.startswith(GZIP_MAGIC) else compression
    unpack = {"gzip": _gunzip, "zlib": _inflate, "lz4": _unpack_lz4, "zstd": _unpack_zstd}[
        container
    ]
    unpacked, is_whole = unpack(body, size_max)
    if len(unpacked) > size_max:
        raise UnreadableBody(f"more than {size_max} bytes come of it")
    if not is_whole:
        raise UnreadableBody(f"its {container} stream ends too early")
    return unpacked


def _gunzip(body: bytes, size_max: int) -> tuple[bytes, bool]:
    """Unpack gzip of one member or more. What follows them and is none is left out, as after a zlib stream."""
    unpacked = bytearray()
    position, member_count = 0, 1
    stream = zlib.decompressobj(_GZIP_BITS)
    try:
        while position < len(body) and len(unpacked) <= size_max:
            if stream.eof:
                if not body.startswith(GZIP_MAGIC, position):
                    break
                member_count += 1
                if member_count > _GZIP_MEMBERS_MAX:
                    raise UnreadableBody(f"it is gzip of more than {_GZIP_MEMBERS_MAX} members")
                stream = zlib.decompressobj(_GZIP_BITS)
            piece = body[position : position + _GZIP_PIECE]
            unpacked += stream.decompress(piece, size_max + 1 - len(unpacked))
            position += len(piece) - len(stream.unused_data)
    except zlib.error as error:
        raise UnreadableBody(f"it is no gzip stream: {error}") from error
    return bytes(unpacked), stream.eof


def _inflate(body: bytes, size_max: int) -> tuple[bytes, bool]:
    stream = zlib.decompressobj()
    try:
        return stream.decompress(body, size_max + 1), stream.eof
    except zlib.error as error:
        raise UnreadableBody(f"it is no zlib stream: {error}") from error


def _unpack_lz4(body: bytes, size_max: int) -> tuple[bytes, bool]:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        return bytes(stream.decompress(body, size_max + 1)), bool(stream.eof)
    except RuntimeError as error:
        raise UnreadableBody(f"it is no lz4 stream: {error}") from error


def _unpack_zstd(body: bytes, size_max: int) -> tuple[bytes, bool]:
    import zstandard

    # Java streams into the frame, which then lacks the content size: unpack as a stream, too.
    stream = zstandard.ZstdDecompressor().decompressobj()
    unpacked = bytearray()
    try:
        for position in range(0, len(body), _ZSTD_PIECE):
            unpacked += stream.decompress(body[position : position + _ZSTD_PIECE])
            if stream.eof or len(unpacked) > size_max:
                break
    except zstandard.ZstdError as error:
        raise UnreadableBody(f"it is no zstd stream: {error}") from error
    return bytes(unpacked), bool(stream.eof)
