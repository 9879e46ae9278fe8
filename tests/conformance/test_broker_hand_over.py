"""A broker with its proxy is stopped, we go on with its directory, and a broker goes on after us."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hand_over import FAR_MS, HandOver, far_count, named, running
from real_processes import until
from servers import PenstockServer, ReferenceServer, certificate
from wire_client import WireClient

from storage.writer import StoreWriter

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
COUNT = int(os.environ.get("HAND_OVER_COUNT", "100"))  # of orders
LEASE_S = 20 + COUNT // 50  # what is received has to be acknowledged before it ends


@pytest.mark.slow
def test_a_broker_is_taken_over_and_given_back(tmp_path: Path) -> None:
    """A broker leaves all pending, we go on with all of it and leave as much, and a broker goes on."""
    ReferenceServer.install()
    folder, count, lease_s = tmp_path, COUNT, LEASE_S
    story = HandOver(folder, count, lease_s)
    with running(ReferenceServer(folder)) as broker:
        story.begin(broker)
        story.delay(broker, "soon", count // 10, lease_s * 1_000)
        story.delay(broker, "far", 5, FAR_MS)
        story.pack_some(broker)
        story.consume_some(broker)
    with running(PenstockServer(folder, *certificate(), {})) as ours:
        with WireClient(ours.address, "bill", ["bills"]) as client:
            story.end_halves(client)
        story.orders_go_on(ours)
        story.audit_gets(ours, [])
        story.reminders_come(ours, "soon")
        story.bills_are(ours)
        story.packing_goes_on(ours)
        story.settle(ours, story.got)
        story.send_orders(ours, "second", count // 2)
        story.delay(ours, "next", count // 10, lease_s * 1_000)
    story.repeats, story.lease_ends_ms = story.acked, {}  # a broker goes on at the group's offset
    with running(ReferenceServer(folder)) as broker:
        story.orders_go_on(broker)
        story.audit_gets(broker, named("second", count // 2))
        story.reminders_come(broker, "next")
        story.bills_are(broker)
    with StoreWriter.open(folder / "store") as writer:
        until(lambda: far_count(writer) == 5)


@pytest.mark.slow
def test_a_broker_goes_on_after_a_kill(tmp_path: Path) -> None:
    """What comes again is what docs/migration.md says of a kill, and no more; nothing that is pending is lost.

    A delayed message is pending that is older than the leases of the broker before: from there on it reads its
    timer topic again.
    """
    ReferenceServer.install()
    folder, lease_s = tmp_path, LEASE_S
    story = HandOver(folder, COUNT, lease_s)
    with running(ReferenceServer(folder)) as broker:
        story.begin(broker)
        story.delay(broker, "far", 5, FAR_MS)
        story.delay(broker, "soon", COUNT // 10, lease_s * 1_000)
        story.consume_some(broker)
    leased = story.lease_ends_ms.keys() & story.open
    offsets = folder / "store" / "config" / "consumerOffset.json"
    with PenstockServer(folder, *certificate(), {}) as ours:
        with WireClient(ours.address, "bill", ["bills"]) as client:
            story.end_halves(client)
        story.orders_go_on(ours)
        story.reminders_come(ours, "soon")
        story.bills_are(ours)
        story.settle(ours, story.got)
        story.send_orders(ours, "second", COUNT // 2)
        story.delay(ours, "next", COUNT // 10, lease_s * 1_000)
        settled = time.time()
        until(lambda: offsets.stat().st_mtime > settled)
        ours.end(killed=True)
    story.repeats, story.lease_ends_ms, story.twice = story.acked, {}, leased
    with running(ReferenceServer(folder)) as broker:
        story.orders_go_on(broker)
        story.audit_gets(broker, named("second", COUNT // 2))
        story.reminders_come(broker, "next", again="soon")
        story.bills_are(broker)
    with StoreWriter.open(folder / "store") as writer:
        until(lambda: far_count(writer) == 5)
