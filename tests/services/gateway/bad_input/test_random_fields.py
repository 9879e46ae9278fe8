"""Right calls in which some fields have values at their borders: each has an answer, and the gateway goes on.

``MALFORMED=20000`` makes so many calls.
"""

from __future__ import annotations

import os
import random
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from malformed import random_message, value_of
from messaging_bed import MessagingBed, codes_of, every_call

from services.gateway.v2 import definition_pb2 as v2

CALLS = int(os.environ.get("MALFORMED", "220"))
SEEDS = 4
SECONDS = (0, -1, 1, 11, 43_201, 1 << 62, -(1 << 62))  # of times and durations


def fields_of(request: Message) -> list[tuple[Message, FieldDescriptor]]:
    """Return every field of a message, and of the messages in it that are there."""
    found = []
    for field in request.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        found.append((request, field))
        if field.message_type is None:
            continue
        held = getattr(request, field.name)
        for each in held if field.is_repeated else [held] if request.HasField(field.name) else []:
            found += fields_of(each)
    return found


def damage(dice: random.Random, request: Message) -> None:
    """Give one field of a request another value, or none."""
    where, field = dice.choice(fields_of(request))
    if field.message_type is not None:
        where.ClearField(field.name)
        if dice.random() < 0.8:
            made = random_message(dice, field.message_type, depth=2)
            into = getattr(where, field.name)
            (into.add() if field.is_repeated else into).MergeFrom(made)
    elif field.is_repeated:
        getattr(where, field.name).append(value_of(dice, field))
    elif field.name == "seconds":
        setattr(where, field.name, dice.choice(SECONDS))
    else:
        setattr(where, field.name, value_of(dice, field))


@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_has_an_answer_that_is_not_a_fault_of_the_gateway(
    bed: MessagingBed, seed: int
) -> None:
    dice = random.Random(seed)
    kinds = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
    topic, group = bed.topic(kinds[seed]), v2.Resource(name=f"borders-{seed}")
    answered = 0
    for number in range(CALLS // SEEDS):
        method, request = dice.choice(list(every_call(topic, group).items()))
        if method == "ReceiveMessage":
            request.long_polling_timeout.Clear()
        for _ in range(dice.choice((1, 1, 2, 4))):
            damage(dice, request)
        client = (("x-mq-client-id", f"borders-{number % 5}"),)
        try:
            call: Any = getattr(bed.stub, method)(request, timeout=2, metadata=client)
            codes = codes_of(call if hasattr(call, "status") else list(call))
        except grpc.RpcError as error:  # of a receive that waits as long as it may
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED, (method, request)
            continue
        assert codes and v2.INTERNAL_SERVER_ERROR not in codes, (method, request, codes)
        answered += 1
    assert answered > CALLS // SEEDS // 2

    good, group = bed.topic(), v2.Resource(name=f"after-borders-{seed}")
    assert bed.send(good).code == v2.OK
    [received] = bed.receive(good, group)
    assert bed.acknowledge(good, group, received.system_properties.receipt_handle) == v2.OK
