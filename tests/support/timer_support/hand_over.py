"""What is done with a directory that changes hands between a broker with its proxy and us, and what has to come of it.

Everything is pending when it changes hands, and of each kind as many as a test says: messages unread, under a lease,
given back, delayed, halves of transactions, messages of an orderly group. All of it is told apart by keys, which are
bodies too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orderly_parcels import Parcels
from real_processes import until
from servers import ReferenceServer, Server
from wire_client import WireClient

from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2.service_pb2 import SendResultEntry
from storage.format.timer_files import out_ms
from storage.writer import StoreWriter

FAR_MS = 3_600_000
PATIENCE_S = 120.0  # beyond the time of a lease
HELD_S = 600  # by who goes on, until the directory changes hands again
HALVES_AT_ONCE = 64  # a proxy knows the id of a transaction for 30 s


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


def slices(keys: list[str], size: int) -> Iterator[list[str]]:
    for begin in range(0, len(keys), size):
        yield keys[begin : begin + size]


def far_count(writer: StoreWriter) -> int:
    """Return how many delayed messages are due after half an hour; a broker's leases end before."""
    near, far = writer.timers.status([FAR_MS // 2, 2 * FAR_MS]).due_counts
    return far - near


class HandOver:
    """What was done with a directory so far, and what is still to come of it.

    ``count`` or some more of each kind are pending whenever it changes hands.
    ``open`` is what the group "billing" did not acknowledge, ``acked`` what it did at the server before. ``repeats``
    of these may come again: those that stand after the first one that was not acknowledged when we stopped. ``twice``
    may be handed out twice beside each other: after a kill a broker hands out its former leases again, as we did.
    """

    def __init__(self, folder: Path, count: int, lease_s: int) -> None:
        self.folder = folder
        self.lease_s = lease_s
        self.patience_s = PATIENCE_S + lease_s
        self.count = count
        self.open: set[str] = set()
        self.given_back: set[str] = set()
        self.acked: set[str] = set()
        self.repeats: set[str] = set()
        self.twice: set[str] = set()
        self.lease_ends_ms: dict[str, int] = {}
        self.dues_ms: dict[str, int] = {}
        self.committed: list[str] = []
        self.halves: list[SendResultEntry] = []
        self.parcels = Parcels(count, self.patience_s)

    # ---- what is left pending

    def begin(self, server: Server) -> None:
        """Store messages of all kinds, and have the group "audit" read all orders."""
        for name, kind, queues in (
            ("orders", "NORMAL", 4), ("later", "DELAY", 1), ("bills", "TRANSACTION", 1),
            ("lines", "FIFO", self.parcels.queue_count),
        ):  # fmt: skip
            server.topic(name, kind, queues)
        for name in ("billing", "audit", "reminders", "bookkeeping"):
            server.group(name, orderly=False, retries=16, backoff_ms=[])
        server.group("packing", orderly=True, retries=16, backoff_ms=[])
        self.send_orders(server, "first", 5 * self.count)
        self.prepare(server, "bill", 2 * self.count)
        self.parcels.send(server, "first")
        with WireClient(server.address, "audit", ["orders"], "audit") as client:
            got = client.receive_all("orders", quiet_s=20, until=5 * self.count, lease_s=300)
            assert set(client.ack("orders", got)) == {v2.OK}
            assert sorted(keys_of(got)) == sorted(named("first", 5 * self.count))

    def send_orders(self, server: Server, kind: str, count: int) -> None:
        with WireClient(server.address, "shop", ["orders"]) as client:
            client.send("orders", named(kind, count))
        self.open.update(named(kind, count))

    def prepare(self, server: Server, kind: str, count: int) -> None:
        """Store halves of so many transactions, and end half of them; the others are pending."""
        with WireClient(server.address, "bill", ["bills"]) as client:
            for keys in slices(named(kind, count), HALVES_AT_ONCE):
                self.halves += self._end_some(client, client.send("bills", keys, v2.TRANSACTION))

    def end_halves(self, server: Server) -> None:
        """End half of the transactions that are pending, by the ids that the server before gave them."""
        with WireClient(server.address, "bill", ["bills"]) as client:
            self.halves = self._end_some(client, self.halves)

    def _end_some(self, client: WireClient, halves: list[SendResultEntry]) -> list[SendResultEntry]:
        """Commit one in four, roll another one back, and return the others."""
        for kept in halves[::4]:
            assert client.end_transaction("bills", kept, commit=True) == v2.OK
            self.committed.append(kept.message_id)
        for dropped in halves[1::4]:
            assert client.end_transaction("bills", dropped, commit=False) == v2.OK
        return halves[2::4] + halves[3::4]

    def delay(self, server: Server, kind: str, count: int, delay_ms: int) -> None:
        with WireClient(server.address, "late", ["later"]) as client:
            due_ms = now_ms() + delay_ms
            client.send("later", named(kind, count), v2.DELAY, deliver_at_ms=due_ms)
            self.dues_ms.update(dict.fromkeys(named(kind, count), due_ms))

    def consume_some(self, server: Server, part: float = 0.8) -> set[str]:
        """Have "billing" receive a part of what it did not acknowledge, and settle that; return what it was."""
        got: dict[str, v2.Message] = {}
        with WireClient(server.address, "billing", ["orders"], "billing") as client:
            end = time.monotonic() + self.patience_s
            while len(got) < int(len(self.open) * part) and time.monotonic() < end:
                ends_ms = now_ms() + self.lease_s * 1_000
                for each in client.receive("orders", lease_s=self.lease_s):
                    got[each.body.decode()] = each
                    self.lease_ends_ms[each.body.decode()] = ends_ms
        self.settle(server, got)
        return set(got)

    def settle(self, server: Server, got: dict[str, v2.Message]) -> None:
        """Acknowledge a third of what "billing" was handed, and give a third back, for a long or a short time."""
        names = sorted(got)
        acked, back, leased = names[::3], names[1::3], names[2::3]
        with WireClient(server.address, "billing", ["orders"], "billing") as client:
            assert set(client.ack("orders", [got[name] for name in acked])) == {v2.OK}
            for number, name in enumerate(back):
                wait_s = 2 if number % 2 else self.lease_s
                self.lease_ends_ms[name] = now_ms() + wait_s * 1_000
                assert client.change("orders", got[name], wait_s) == v2.OK
        self.open -= set(acked)
        self.acked = set(acked)
        self.given_back |= set(back)
        self.held = got[leased[-1]]

    def is_pending(self, timers: str) -> None:
        """Check that as much is pending as the test says; ``timers`` are the delayed messages that are due soon."""
        now = now_ms()
        leased = self.open - self.given_back
        pending = {
            "leases": sum(now < self.lease_ends_ms.get(name, 0) for name in leased),
            "retries": len(self.open & self.given_back),
            "timers": sum(now < due for name, due in self.dues_ms.items() if timers in name),
            "halves": len(self.halves),
            "lines": self.parcels.leased_count(),
        }
        assert min(pending.values()) >= self.count, pending

    # ---- what comes of it

    def orders_go_on(self, server: Server) -> None:
        """Have "billing" receive all that is left; nothing is lost, early, or there that is done."""
        came: list[str] = []
        self.got: dict[str, v2.Message] = {}
        ends_ms: dict[str, int] = {}
        with WireClient(server.address, "billing", ["orders"], "billing") as client:
            assert client.ack("orders", [self.held]) != [v2.OK]  # by a handle of the server before
            last = time.monotonic()
            while not self.open <= set(came) and time.monotonic() - last < self.patience_s:
                asked_ms = now_ms()
                more = client.receive("orders", lease_s=HELD_S)
                arrived_ms = now_ms()
                early = [
                    name for name in keys_of(more) if arrived_ms < self.lease_ends_ms.get(name, 0)
                ]
                assert early == []
                came += keys_of(more)
                self.got.update(zip(keys_of(more), more, strict=True))
                ends_ms.update(dict.fromkeys(keys_of(more), asked_ms + HELD_S * 1_000))
                last = time.monotonic() if more else last
            rest = keys_of(client.receive_all("orders", quiet_s=10 if self.twice else 1))
            assert self.twice or rest == []
            times = Counter(came + rest)
            assert sorted(self.open - times.keys()) == []
            assert sorted(times.keys() - self.open - self.repeats) == []
            assert sorted({name for name in times if times[name] > 1} - self.twice) == []
            assert max(times.values()) <= 2
        self.lease_ends_ms, self.given_back = ends_ms, set()

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
            end = time.monotonic() + self.patience_s
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

    def halves_are(self, writer: StoreWriter) -> None:
        """Check that the transactions are pending that nobody ended, and no others."""
        until(lambda: writer.transactions.status().pending_count == len(self.halves))
        pending = {each.transaction_id for each in writer.transactions.pending()}
        assert pending <= {each.transaction_id for each in self.halves}
