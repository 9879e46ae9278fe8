"""Requests and HTTP/2 frames that no client of ours sends, made from a seed."""

from __future__ import annotations

import importlib
import pkgutil
import random

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError, Message
from raw_http2 import PREFACE, RawConnection, frame, message_head

import penstock.v1

TOPIC = "malformed"
LOADED = "load"
TEXTS = ("", TOPIC, LOADED, "../x", "a\0b", "%s" * 50, "TAG || *", "x" * 300)
NUMBERS = (0, 1, -1, 2, 255, 1 << 20, (1 << 31) - 1, -(1 << 31))
WIDE = (1 << 62, -(1 << 63))
NESTED_MAX = 4
# With a right request: they get damaged ones only.
HARMFUL = {"DeleteTopic", "UpdateTopic", "DeleteExpired"}
DAY_MS = 86_400_000


def methods() -> list[MethodDescriptor]:
    """Return every method of the contract."""
    found = []
    for module in pkgutil.iter_modules(penstock.v1.__path__):
        if module.name.endswith("_pb2"):
            file = importlib.import_module(f"penstock.v1.{module.name}").DESCRIPTOR
            found += [
                each for service in file.services_by_name.values() for each in service.methods
            ]
    return found


def random_message(dice: random.Random, descriptor: Descriptor, depth: int = 0) -> Message:
    """Return a message whose fields have values at their borders, or none."""
    made = message_factory.GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if dice.random() < 0.3:
            continue
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.message_type is not None and (is_map or depth == NESTED_MAX):
            continue
        for _ in range(dice.choice((1, 1, 2, 20)) if field.is_repeated else 1):
            if field.message_type is not None:
                nested = random_message(dice, field.message_type, depth + 1)
                into = getattr(made, field.name)
                (into.add() if field.is_repeated else into).CopyFrom(nested)
            elif field.is_repeated:
                getattr(made, field.name).append(value_of(dice, field))
            else:
                setattr(made, field.name, value_of(dice, field))
    return made


def value_of(dice: random.Random, field: FieldDescriptor) -> object:
    """Return a value at the borders of a field's type."""
    kind = field.cpp_type
    if field.type == FieldDescriptor.TYPE_BYTES:
        return dice.randbytes(dice.choice((0, 1, 87, 88, 200)))
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return dice.choice(TEXTS)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return dice.random() < 0.5
    if kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64):
        return abs(dice.choice(NUMBERS[:-1]))
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return dice.choice((0, 1, 2, 77))
    if kind == FieldDescriptor.CPPTYPE_INT64:
        return dice.choice(NUMBERS + WIDE)
    return dice.choice(NUMBERS)


def mutated(dice: random.Random, data: bytes) -> bytes:
    """Return bytes with a few flipped, cut off, repeated, or made up."""
    made = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 5))):
        at = dice.randrange(len(made) + 1)
        match dice.randrange(5):
            case 0 if made:
                made[at - 1] ^= 1 << dice.randrange(8)
            case 1:
                del made[at:]
            case 2:
                made[at:at] = dice.randbytes(dice.choice((1, 4, 50)))
            case 3:
                made[at:at] = made[: dice.randrange(len(made) + 1)]
            case _:
                made[at : at + 1] = b"\xff\xff\xff\xff\x7f"
    return bytes(made)


def requests_of(dice: random.Random, method: MethodDescriptor) -> list[bytes]:
    """Return a few requests of a method, serialized, most of them damaged."""
    made = []
    for _ in range(dice.choice((1, 1, 3)) if method.client_streaming else 1):
        data = random_message(dice, method.input_type).SerializeToString()
        if method.name in HARMFUL or dice.random() < 0.7:
            data = mutated(dice, data)
        if not _changes_what_is_loaded(method, data):
            made.append(data)
    return made or requests_of(dice, method)


def _changes_what_is_loaded(method: MethodDescriptor, data: bytes) -> bool:
    """Whether a request that is right deletes or changes what the honest callers beside it have stored."""
    if method.name not in HARMFUL:
        return False
    try:
        request = message_factory.GetMessageClass(method.input_type).FromString(data)
    except DecodeError:
        return False
    if method.name == "DeleteExpired":
        return bool(request.HasField("older_than_ms") and 0 <= request.older_than_ms < DAY_MS)
    return bool(request.name == LOADED)


def send_frames(dice: random.Random, address: str) -> None:
    """Open a connection and send frames of any kind, right and wrong ones, until the server has enough."""
    with RawConnection(address) as connection:
        for _ in range(50):
            match dice.randrange(4):
                case 0:
                    stream, head = connection.begin_call()
                    length = dice.choice((0, 5, 100, (1 << 32) - 1))
                    data = head + frame(0, message_head(length) + dice.randbytes(20), stream=stream)
                case 1:
                    data = frame(
                        dice.randrange(14), dice.randbytes(dice.choice((0, 4, 5, 8, 100))),
                        flags=dice.randrange(256), stream=dice.choice((0, 1, 3, 2, (1 << 31) - 1)),
                    )  # fmt: skip
                case 2:
                    data = mutated(dice, frame(4, dice.randbytes(12)))
                case _:
                    data = dice.choice((PREFACE, b"GET / HTTP/1.1\r\n\r\n", dice.randbytes(100)))
            if not connection.send(data, timeout_s=1):
                return
