"""Messages of an orderly group while a directory changes hands: lines of parcels, in the order of each parcel."""

from __future__ import annotations

import time
from collections import defaultdict

from servers import Server
from wire_client import WireClient

from services.gateway.v2 import definition_pb2 as v2

LINES = 3  # of a parcel
PARCELS_OF_A_QUEUE = 8  # on average: of a broker one receive takes all of a queue


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Parcels:
    """What the group "packing" was sent, and did with it; at least ``count`` lines are under a lease after it.

    ``acked`` it has acknowledged at the server before, also out of turn; these may come again where ``repeats`` says so.
    """

    def __init__(self, count: int, patience_s: float) -> None:
        self._patience_s = patience_s
        self._parcel_count = (
            count + count // 8 + 2
        )  # some are done, and one line of each of the others is leased
        self.queue_count = -(-self._parcel_count // PARCELS_OF_A_QUEUE)
        self.open: dict[str, list[str]] = defaultdict(list)
        self.acked: set[str] = set()
        self.lease_ends_ms: dict[str, int] = {}

    def send(self, server: Server, kind: str) -> None:
        """Store the lines of new parcels."""
        with WireClient(server.address, "lines", ["lines"]) as client:
            for number in range(self._parcel_count):
                parcel = f"{kind}-{number}"
                lines = [f"{parcel}-{line}" for line in range(LINES)]
                client.send("lines", lines, v2.FIFO, message_group=parcel)
                self.open[parcel] += lines

    def pack_some(self, server: Server, lease_s: int) -> None:
        """Have the group receive what it can get, and acknowledge every third line of it."""
        self.acked, self.lease_ends_ms = set(), {}
        with WireClient(server.address, "packing", ["lines"], "packing") as client:
            end = time.monotonic() + self._patience_s
            is_quiet = False
            while not is_quiet and time.monotonic() < end:
                ends_ms = now_ms() + lease_s * 1_000  # not after the lease's end
                got = client.receive("lines", lease_s=lease_s)
                assert set(client.ack("lines", got[::3])) <= {v2.OK}
                self._close(got[::3])
                self.acked.update(each.body.decode() for each in got[::3])
                for each in got:
                    self.lease_ends_ms[each.body.decode()] = ends_ms
                is_quiet = not got and bool(self.lease_ends_ms)

    def leased_count(self) -> int:
        """Return how many lines are under a lease."""
        now, ends_ms = now_ms(), self.lease_ends_ms
        return sum(now < ends_ms.get(name, 0) for lines in self.open.values() for name in lines)

    def go_on(self, server: Server, *, is_at_once: bool, repeats: bool) -> None:
        """Have the group receive the rest, each parcel in order; not before a lease ends, unless they come at once."""
        with WireClient(server.address, "packing", ["lines"], "packing") as client:
            end = time.monotonic() + self._patience_s
            while any(self.open.values()) and time.monotonic() < end:
                more = client.receive("lines", lease_s=60)
                arrived_ms = now_ms()
                assert set(client.ack("lines", more)) <= {v2.OK}
                for each in more:
                    name = each.body.decode()
                    assert is_at_once or arrived_ms >= self.lease_ends_ms.get(name, 0), name
                    assert repeats or name not in self.acked, name
                    if name not in self.acked:
                        assert self.open[name.rpartition("-")[0]][:1] == [name]
                        self._close([each])
            assert not any(self.open.values())
            assert client.receive("lines") == []

    def _close(self, messages: list[v2.Message]) -> None:
        for each in messages:
            name = each.body.decode()
            self.open[name.rpartition("-")[0]].remove(name)
