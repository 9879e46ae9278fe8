"""Stage files: records of a staged commit that are durable and not in the log yet.

A stage file is a sequence of blocks, each a head and the bytes that it announces. Block head, big-endian::

    offset  size  type  field
    0       4     4s    kind        b"PnSh" header, b"PnSd" records, b"PnSe" seal
    4       4     u32   length      of what follows the head
    8       4     u32   crc         CRC-32 of what follows the head
    12

The first block is a header, the last a seal, both JSON; a file without a seal was never acknowledged.
Between them are blocks of records as a client encodes them (docs/format.md). Each record carries a
unique key that says which of the stage's records it is, so that one found in the log is recognised::

    24 hex digits   the stage: of SHA-256 over application id, version and attempt
    8 hex digits    number of the record in the stage, from 0
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from hashlib import sha256
from struct import Struct
from typing import Any, Final

BLOCK_HEAD: Final = Struct(">4sII")
HEADER: Final = b"PnSh"
RECORDS: Final = b"PnSd"
SEAL: Final = b"PnSe"

PREFIX_SIZE: Final = 24
SEQUENCE_SIZE: Final = 8
UNIQUE_KEY_SIZE: Final = PREFIX_SIZE + SEQUENCE_SIZE
DIGITS: Final = b"0123456789ABCDEF"
RECORD_COUNT_MAX: Final = 16**SEQUENCE_SIZE - 1
ID_LENGTH_MAX: Final = 200
VERSION_MAX: Final = (1 << 63) - 1

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_KEPT_OF_NAME: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class StageHeader:
    """Whose records a stage file holds; ``one_off`` says that the application id is never used again."""

    app_id: str
    version: int
    attempt: str
    created_ms: int
    one_off: bool = False

    def encode(self) -> bytes:
        """Return the header's JSON."""
        return _json(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> StageHeader:
        """Read the header's JSON; ValueError, KeyError or TypeError if it is not valid."""
        return cls(**json.loads(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSeal:
    """What a whole stage file holds: its records, their bytes, and the queues they are for."""

    record_count: int
    byte_count: int
    queues: tuple[tuple[str, int], ...]

    def encode(self) -> bytes:
        """Return the seal's JSON."""
        return _json(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> StageSeal:
        """Read the seal's JSON; ValueError, KeyError or TypeError if it is not valid."""
        fields = json.loads(data)
        fields["queues"] = tuple((topic, queue_id) for topic, queue_id in fields["queues"])
        return cls(**fields)


def id_problem(value: str) -> str | None:
    """Say what keeps a text from being an application or attempt id; None if nothing does."""
    if not value:
        return "is empty"
    if len(value) > ID_LENGTH_MAX:
        return f"has {len(value)} characters; the most is {ID_LENGTH_MAX}"
    if not value.isprintable():
        return "contains a character that cannot be printed"
    return None


def safe_name(value: str) -> str:
    """Return a file name for an id: what is readable of it, and a hash that makes it unique."""
    digest = sha256(value.encode()).hexdigest()[:20]
    readable = _UNSAFE.sub("_", value)[:_KEPT_OF_NAME].strip("_")
    return f"{readable}-{digest}" if readable else digest


def stage_prefix(app_id: str, version: int, attempt: str) -> str:
    """Return what the unique keys of a stage's records begin with."""
    named = _json([app_id, version, attempt])
    return sha256(named).hexdigest()[:PREFIX_SIZE].upper()


def unique_key(prefix: str, sequence: int) -> str:
    """Return the unique key of one record of a stage."""
    return f"{prefix}{sequence:0{SEQUENCE_SIZE}X}"


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()
