"""A connection is renewed once for all that failed on it; the one before stays open for the calls under way."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from faulty_penstock import FaultyPenstock
from hand_clock import HandClock

from penstock import wire
from penstock.addresses import Addresses
from penstock.channel import LANES, RETIRED_CHANNELS_MAX, RETIRED_S_MIN, ServiceChannels
from penstock.forms import finished


@pytest.fixture(name="clock")
def _clock() -> HandClock:
    return HandClock()


@pytest.fixture(name="channels")
def _channels(clock: HandClock, faulty: FaultyPenstock) -> Any:
    channels = ServiceChannels(Addresses(*[faulty.address] * 3), clock)
    yield channels
    finished(channels.close)


def renewed(channels: ServiceChannels) -> bool:
    """Renew the connection that there is; whether there is another one then."""
    stub = channels.stub(wire.PRODUCE)
    channels.renew(wire.PRODUCE, stub)
    return channels.stub(wire.PRODUCE) is not stub


def is_open(channel: grpc.Channel) -> bool:
    try:
        wire.PRODUCE_BATCH.on(channel).future((b"", b""), timeout=5).cancel()
    except ValueError:  # grpc: the channel is closed
        return False
    return True


def test_a_connection_is_renewed_once_for_all_calls_that_failed_on_it(
    channels: ServiceChannels,
) -> None:
    failed, other = channels.stub(wire.PRODUCE), channels.stub(wire.PRODUCE_BATCH)
    channels.renew(wire.PRODUCE, failed)
    channel = channels.of("writer")
    channels.renew(wire.PRODUCE, failed)
    channels.stub(wire.PRODUCE_BATCH)
    channels.renew(wire.PRODUCE_BATCH, other)
    assert channels.of("writer") is channel


def test_calls_of_both_lanes_move_to_other_connections(channels: ServiceChannels) -> None:
    """Whichever of them has no answer: the connection is shared."""
    for silent in LANES:
        before = [channels.stub(wire.PRODUCE, lane) for lane in LANES]
        channels.renew(wire.PRODUCE, channels.stub(wire.PRODUCE, silent))
        after = [channels.stub(wire.PRODUCE, lane) for lane in LANES]
        assert not {*map(id, before)} & {*map(id, after)}


@pytest.mark.parametrize(("call_s", "open_s"), [(1, RETIRED_S_MIN), (100, 200)])
def test_retired_connections_stay_open_for_the_calls_under_way(
    channels: ServiceChannels, clock: HandClock, call_s: float, open_s: float
) -> None:
    channels.allow(call_s)
    first = channels.of("writer")
    assert all(renewed(channels) for _ in range(RETIRED_CHANNELS_MAX))
    clock.pass_ms(int(open_s * 1000) - 1)
    assert not renewed(channels)
    assert is_open(first)
    clock.pass_ms(1)
    assert renewed(channels)
    assert not is_open(first)
