"""A broker with its proxy is stopped or killed, we go on with its directory, and a broker goes on after us."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hand_over import FAR_MS, HandOver, far_count, named, running
from real_processes import until
from servers import PenstockServer, ReferenceServer

from storage.writer import StoreWriter

COUNT = int(os.environ.get("HAND_OVER_COUNT", "50"))  # of each kind that is pending
LEASE_S = 30 + COUNT // 16  # what is received has to be acknowledged before it ends
REVIVED_S = 8  # until a broker has stored again what was given back for two seconds
CHECKS_MAX = 1_000  # of a transaction: a test of thousands lasts longer than fifteen of them
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600 + COUNT)]


def broker_on(folder: Path) -> ReferenceServer:
    return ReferenceServer(folder, transactionCheckMax=CHECKS_MAX)


def penstock_on(folder: Path) -> PenstockServer:
    return PenstockServer(folder, {"transaction-check-max": str(CHECKS_MAX)})


def leave_pending(story: HandOver, server: ReferenceServer, *, orderly: bool) -> None:
    """Have a broker store and hand out messages of all kinds."""
    story.begin(server)
    story.delay(server, "far", COUNT, FAR_MS)
    story.delay(server, "soon", COUNT, LEASE_S * 1_000)
    if orderly:
        story.parcels.pack_some(server, LEASE_S)
    story.consume_some(server)


def go_on(story: HandOver, ours: PenstockServer) -> None:
    """Have all come of it at our services, each message once and at its time."""
    story.end_halves(ours)
    story.orders_go_on(ours)
    story.audit_gets(ours, [])
    story.reminders_come(ours, "soon")
    story.bills_are(ours)
    story.parcels.go_on(ours, is_at_once=False, repeats=False)


def leave_as_much(story: HandOver, ours: PenstockServer) -> None:
    """Have our services store and hand out as much."""
    story.settle(ours, story.got)
    story.send_orders(ours, "second", 2 * COUNT)
    story.prepare(ours, "next", COUNT + 16)
    story.delay(ours, "next", COUNT, LEASE_S * 1_000)
    story.parcels.send(ours, "next")
    story.parcels.pack_some(ours, LEASE_S)


def broker_goes_on(story: HandOver, folder: Path, *, again: str = "") -> None:
    """Have all come of that at a broker, which goes on at each group's offset, at once."""
    story.repeats, story.lease_ends_ms = story.acked, {}
    with running(broker_on(folder)) as broker:
        story.parcels.go_on(broker, is_at_once=True, repeats=True)
        story.orders_go_on(broker)
        story.audit_gets(broker, named("second", 2 * COUNT))
        story.reminders_come(broker, "next", again=again)
        story.bills_are(broker)
    with StoreWriter.open(folder / "store") as writer:
        until(lambda: far_count(writer) == COUNT)
        story.halves_are(writer)


def is_saved(folder: Path, *names: str) -> None:
    """Wait until a server has saved files of ``config/`` again."""
    now = time.time()
    files = [folder / "store" / "config" / name for name in names]
    until(lambda: min(each.stat().st_mtime for each in files) > now)


@pytest.mark.slow
def test_a_broker_is_taken_over_and_given_back(tmp_path: Path) -> None:
    """A broker leaves all pending, we go on with all of it and leave as much, and a broker goes on."""
    ReferenceServer.install()
    story = HandOver(tmp_path, COUNT, LEASE_S)
    with running(broker_on(tmp_path)) as broker:
        leave_pending(story, broker, orderly=True)
    story.is_pending("soon")
    with running(penstock_on(tmp_path)) as ours:
        go_on(story, ours)
        leave_as_much(story, ours)
    story.is_pending("next")
    broker_goes_on(story, tmp_path)


@pytest.mark.slow
def test_a_broker_goes_on_after_a_kill(tmp_path: Path) -> None:
    """What comes again is what docs/migration.md says of a kill, and no more; nothing that is pending is lost.

    A delayed message is pending that is older than the leases of the broker before: from there on it reads its
    timer topic again.
    """
    ReferenceServer.install()
    story = HandOver(tmp_path, COUNT, LEASE_S)
    with running(broker_on(tmp_path)) as broker:
        leave_pending(story, broker, orderly=False)
    leased = story.lease_ends_ms.keys() & story.open
    with penstock_on(tmp_path) as ours:
        go_on(story, ours)
        leave_as_much(story, ours)
        is_saved(tmp_path, "consumerOffset.json")
        ours.end(killed=True)
    story.is_pending("next")
    story.twice = leased
    broker_goes_on(story, tmp_path, again="soon")


@pytest.mark.slow
def test_a_killed_broker_is_taken_over(tmp_path: Path) -> None:
    """A broker has saved no offsets of its last five seconds: what it handed out then comes again at once, as from itself.

    What of that was acknowledged comes once more, what was not also when its lease ends.
    """
    ReferenceServer.install()
    story = HandOver(tmp_path, COUNT, LEASE_S)
    with broker_on(tmp_path) as broker:
        leave_pending(story, broker, orderly=True)
        story.delay(broker, "early", COUNT, 1_000)
        story.reminders_come(broker, "early")
        time.sleep(REVIVED_S)
        is_saved(tmp_path, "consumerOffset.json", "consumerOrderInfo.json")
        leases = dict(story.lease_ends_ms)
        late = story.consume_some(broker, part=0.3)
        broker.end(killed=True)
    story.is_pending("soon")
    story.repeats, story.twice = story.acked, late - story.acked
    story.lease_ends_ms = {name: leases[name] for name in leases.keys() - late}
    with running(penstock_on(tmp_path)) as ours:
        go_on(story, ours)
    with StoreWriter.open(tmp_path / "store") as writer:
        until(lambda: far_count(writer) == COUNT)
        story.halves_are(writer)
