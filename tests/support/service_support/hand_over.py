"""What is done with a directory that changes hands between a broker with its proxy and us, and what has to come of it.

Everything is pending when it changes hands: messages unread, under a lease, given back, delayed, halves of
transactions. All of it is told apart by keys, which are bodies too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from servers import ReferenceServer, Server
from wire_client import WireClient

from services.rocketmq.v2 import definition_pb2 as v2
from storage.format.timers.seconds import out_ms
from storage.writer import StoreWriter

FAR_MS = 3_600_000
PATIENCE_S = 120.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def keys_of(messages: Iterable[v2.Message]) -> list[str]:
    return [each.body.decode() for each in messages]


def named(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number}" for number in range(count)]


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Run a server to an orderly stop."""
    with server:
        yield server
        server.end(killed=False)


def far_count(writer: StoreWriter) -> int:
    """Return how many delayed messages are due after half an hour; a broker's leases end before."""
    near, far = writer.timers.status([FAR_MS // 2, 2 * FAR_MS]).due_counts
    return far - near


class HandOver:
    """What was done with a directory so far, and what is still to come of it.

    ``open`` is what the group "billing" did not acknowledge, ``acked`` what it did at the server before. ``repeats``
    of these may come again: those that stand after the first one that was not acknowledged when we stopped. ``twice``
    may be handed out twice beside each other: after a kill a broker hands out its former leases again, as we did.
    """

    def __init__(self, folder: Path, count: int, lease_s: int) -> None:
        self.folder = folder
        self.lease_s = lease_s
        self.count = count
        self.open: set[str] = set()
        self.acked: set[str] = set()
        self.repeats: set[str] = set()
        self.twice: set[str] = set()
        self.lease_ends_ms: dict[str, int] = {}
        self.dues_ms: dict[str, int] = {}
        self.committed: list[str] = []

    # ---- what is left pending

    def begin(self, server: Server) -> None:
        """Store messages of all kinds, and have the group "audit" read all orders."""
        for name, kind, queues in (
            ("orders", "NORMAL", 4), ("later", "DELAY", 1), ("bills", "TRANSACTION", 1),
            ("lines", "FIFO", 1),
        ):  # fmt: skip
            server.topic(name, kind, queues)
        for name in ("billing", "audit", "reminders", "bookkeeping"):
            server.group(name, orderly=False, retries=16, backoff_ms=[])
        server.group("packing", orderly=True, retries=16, backoff_ms=[])
        self.send_orders(server, "first", self.count)
        with WireClient(server.address, "bill", ["bills"]) as client:
            self.halves = client.send("bills", named("bill", 6), v2.TRANSACTION)
            self.end_halves(client)
        with WireClient(server.address, "lines", ["lines"]) as client:
            client.send("lines", named("line", 8), v2.FIFO, message_group="parcel")
        with WireClient(server.address, "audit", ["orders"], "audit") as client:
            got = client.receive_all("orders", quiet_s=20, until=self.count, lease_s=300)
            assert set(client.ack("orders", got)) == {v2.OK}
            assert sorted(keys_of(got)) == sorted(named("first", self.count))

    def send_orders(self, server: Server, kind: str, count: int) -> None:
        with WireClient(server.address, "shop", ["orders"]) as client:
            client.send("orders", named(kind, count))
        self.open.update(named(kind, count))

    def end_halves(self, client: WireClient) -> None:
        """Commit one of the halves, roll one back, and leave the others."""
        (kept, dropped), self.halves = self.halves[:2], self.halves[2:]
        assert client.end_transaction("bills", kept, commit=True) == v2.OK
        assert client.end_transaction("bills", dropped, commit=False) == v2.OK
        self.committed.append(kept.message_id)

    def delay(self, server: Server, kind: str, count: int, delay_ms: int) -> None:
        with WireClient(server.address, "late", ["later"]) as client:
            due_ms = now_ms() + delay_ms
            client.send("later", named(kind, count), v2.DELAY, deliver_at_ms=due_ms)
            self.dues_ms.update(dict.fromkeys(named(kind, count), due_ms))

    def consume_some(self, server: Server) -> None:
        """Have "billing" receive four fifths of the orders, and settle a part of them."""
        got: dict[str, v2.Message] = {}
        with WireClient(server.address, "billing", ["orders"], "billing") as client:
            end = time.monotonic() + PATIENCE_S
            while len(got) < len(self.open) * 4 // 5 and time.monotonic() < end:
                ends_ms = now_ms() + self.lease_s * 1_000
                for each in client.receive("orders", lease_s=self.lease_s):
                    got[each.body.decode()] = each
                    self.lease_ends_ms[each.body.decode()] = ends_ms
        self.settle(server, got)

    def settle(self, server: Server, got: dict[str, v2.Message]) -> None:
        """Acknowledge half of what "billing" was handed, and give some back; the rest is under its lease."""
        names = sorted(got)
        acked, kept = names[::2], names[1::2]
        with WireClient(server.address, "billing", ["orders"], "billing") as client:
            assert set(client.ack("orders", [got[name] for name in acked])) == {v2.OK}
            for name in kept[:10]:
                self.lease_ends_ms[name] = now_ms() + 2_000
                assert client.change("orders", got[name], 2) == v2.OK
        self.open -= set(acked)
        self.acked = set(acked)
        self.held = got[kept[-1]]

    def pack_some(self, server: Server) -> None:
        """Have the orderly group receive a first part, and acknowledge one message."""
        with WireClient(server.address, "packing", ["lines"], "packing") as client:
            got: list[v2.Message] = []
            end = time.monotonic() + PATIENCE_S
            while not got and time.monotonic() < end:
                self.pack_ends_ms = now_ms() + self.lease_s * 1_000  # not after the lease's end
                got = client.receive("lines", count=3, lease_s=self.lease_s)
            assert client.ack("lines", got[:1]) == [v2.OK]
            self.packed = keys_of(got[:1])

    # ---- what comes of it

    def orders_go_on(self, server: Server) -> None:
        """Have "billing" receive all that is left; nothing is lost, early, or there that is done."""
        came: list[str] = []
        self.got: dict[str, v2.Message] = {}
        with WireClient(server.address, "billing", ["orders"], "billing") as client:
            assert client.ack("orders", [self.held]) != [v2.OK]  # by a handle of the server before
            last = time.monotonic()
            while not self.open <= set(came) and time.monotonic() - last < PATIENCE_S:
                more = client.receive("orders", lease_s=300)
                arrived_ms = now_ms()
                early = [
                    name for name in keys_of(more) if arrived_ms < self.lease_ends_ms.get(name, 0)
                ]
                assert early == []
                came += keys_of(more)
                self.got.update(zip(keys_of(more), more, strict=True))
                last = time.monotonic() if more else last
            rest = keys_of(client.receive_all("orders", quiet_s=10 if self.twice else 1))
            assert self.twice or rest == []
            times = Counter(came + rest)
            assert sorted(self.open - times.keys()) == []
            assert sorted(times.keys() - self.open - self.repeats) == []
            assert sorted({name for name in times if times[name] > 1} - self.twice) == []
            assert max(times.values()) <= 2

    def audit_gets(self, server: Server, names: list[str]) -> None:
        """Have "audit", which has acknowledged all that was there, receive what is new."""
        with WireClient(server.address, "audit", ["orders"], "audit") as client:
            came = client.receive_all("orders", quiet_s=20 if names else 2, until=len(names) or 1)
        assert sorted(keys_of(came)) == sorted(names)

    def reminders_come(self, server: Server, kind: str, again: str = "") -> None:
        """Have what is due received: at its time, and once; those of another kind may have come before.

        A broker's timer knows only the last whole second before a time, and delivers from then on.
        """
        begins_ms = out_ms if server.name == ReferenceServer.name else int
        wanted = {name for name in self.dues_ms if name.startswith(kind)}
        came: list[str] = []
        with WireClient(server.address, "reminders", ["later"], "reminders") as client:
            end = time.monotonic() + PATIENCE_S
            while not wanted <= set(came) and time.monotonic() < end:
                more = client.receive("later", lease_s=300)
                arrived_ms = now_ms()
                early = {
                    name: self.dues_ms[name] - arrived_ms
                    for name in keys_of(more)
                    if arrived_ms < begins_ms(self.dues_ms[name])
                }
                assert early == {}
                assert set(client.ack("later", more)) <= {v2.OK}
                came += keys_of(more)
        repeated = [name for name in came if again and name.startswith(again)]
        assert sorted(came) == sorted([*wanted, *set(repeated)])

    def bills_are(self, server: Server) -> None:
        """Have the committed messages received, and no others; each once in all."""
        with WireClient(server.address, "books", ["bills"], "bookkeeping") as client:
            got = client.receive_all("bills", quiet_s=10, until=len(self.committed))
            got += client.receive_all("bills", quiet_s=1)
            assert set(client.ack("bills", got)) <= {v2.OK}
        assert sorted(keys_of(got)) == sorted(self.committed)
        self.committed = []

    def packing_goes_on(self, server: Server) -> None:
        """Have the orderly group receive the rest in order, when its lease has ended."""
        packed = list(self.packed)
        with WireClient(server.address, "packing", ["lines"], "packing") as client:
            end = time.monotonic() + PATIENCE_S
            while len(packed) < 8 and time.monotonic() < end:
                more = client.receive("lines", lease_s=60)
                assert not more or now_ms() >= self.pack_ends_ms
                assert set(client.ack("lines", more)) <= {v2.OK}
                packed += keys_of(more)
        assert packed == named("line", 8)
