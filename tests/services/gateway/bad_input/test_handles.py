"""Receipt handles that are forged, of others, expired or used: refused with 40013, and the lease they are like holds."""

from __future__ import annotations

import random
import string

from messaging_bed import MessagingBed
from real_processes import until

from services.gateway.v2 import definition_pb2 as v2


def forged(handle: str) -> list[str]:
    """Return handles that nobody was given, each nearly a good one."""
    dice = random.Random(7)
    letters = string.ascii_letters + string.digits
    made = ["".join(dice.choices(letters, k=len(handle)))]
    for place in (0, len(handle) // 2, len(handle) - 1):
        other = "A" if handle[place] != "A" else "B"
        made.append(handle[:place] + other + handle[place + 1 :])
    return [*made, handle[:-1], handle + "A", "", "é" * len(handle)]


def test_forged_handles_are_refused_and_the_lease_holds(bed: MessagingBed) -> None:
    topic, group, handle = bed.lease_one()
    for each in forged(handle):
        codes = {call(topic, group, each) for call in (bed.acknowledge, bed.change, bed.give_up)}
        assert codes == {v2.INVALID_RECEIPT_HANDLE}, each
    assert bed.acknowledge(topic, group, handle) == v2.OK


def test_handles_outlast_a_restart_of_the_reader(bed: MessagingBed) -> None:
    topic, group = bed.topic(), v2.Resource(name="restarted")
    for number in range(3):
        assert bed.send(topic, b"%d" % number).code == v2.OK
    leased: dict[bytes, str] = {}
    while len(leased) < 3:
        for each in bed.receive(topic, group):
            leased[each.body] = each.system_properties.receipt_handle
    assert bed.acknowledge(topic, group, leased[b"0"]) == v2.OK
    bed.restart_reader()
    until(lambda: bed.acknowledge(topic, group, leased[b"1"]) == v2.OK)  # it is connected again
    assert bed.acknowledge(topic, group, leased[b"0"]) == v2.INVALID_RECEIPT_HANDLE
    assert bed.acknowledge(topic, group, leased[b"1"]) == v2.INVALID_RECEIPT_HANDLE
    assert bed.change(topic, group, leased[b"2"]) == v2.OK
    [again] = bed.receive(topic, group)
    assert (again.body, again.system_properties.delivery_attempt) == (b"2", 2)
    assert bed.acknowledge(topic, group, again.system_properties.receipt_handle) == v2.OK
