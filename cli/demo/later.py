"""The demo's step with time and a database: reminders that come later, messages tied to rows of SQLite."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cli.demo.demo import Demo
    from penstock import Client, PendingTransaction, TransactionCheck

REMINDERS: Final = "reminders"
PURCHASES: Final = "purchases"
PARCELS: Final = "parcels"
REMINDER_COUNT: Final = 200
PAID_EVERY: Final = 10  # their reminder is recalled
DELAY_MS: Final = 2_000  # of the first reminder
PURCHASE_COUNT: Final = 60
FOREIGN_EVERY: Final = 10  # the database refuses them
CRASHED_COUNT: Final = 4  # the shop dies before it commits; of every second one the row is there
PATIENCE_S: Final = 30.0
_LOOK_S: Final = 0.02


def show_later(demo: Demo, client: Client) -> None:
    """Send reminders ahead of time, tie messages to a database while they wait, then count both."""
    for topic in (REMINDERS, PURCHASES, PARCELS):
        client.create_topic(topic, queues=4)
    due_ms = send_reminders(demo, client)
    show_transactions(demo, client)
    show_reminders(demo, client, due_ms)


def send_reminders(demo: Demo, client: Client) -> dict[int, int]:
    """Send reminders, recall some; return when each of the others is due, in Unix milliseconds."""
    demo.step(
        f"Reminders: {REMINDER_COUNT}, each for {DELAY_MS / 1000:g} s later, to the millisecond;"
        f" {REMINDER_COUNT // PAID_EVERY} are recalled"
    )
    due_ms = {}
    for number in range(REMINDER_COUNT):
        body = json.dumps({"order": number}).encode()
        deliver_at = client.clock.now_ms() + DELAY_MS
        stored = client.produce(REMINDERS, body, deliver_at=deliver_at)
        if number % PAID_EVERY == 0:
            client.recall(stored.recall_handle, topic=REMINDERS)
        else:
            due_ms[number] = deliver_at
    return due_ms


def show_reminders(demo: Demo, client: Client, due_ms: dict[int, int]) -> None:
    """Wait for the reminders; compare the time at which each was stored in its topic with its own."""
    demo.step("The reminders come")
    wait_until(lambda: len(bodies(client, REMINDERS)) >= len(due_ms))
    stored_ms = {
        json.loads(record.body)["order"]: record.store_timestamp_ms
        for record in client.consume(REMINDERS, follow=False)
    }
    demo.check(
        f"{len(stored_ms)} of {REMINDER_COUNT} have come, no recalled one among them",
        stored_ms.keys() == due_ms.keys(),
    )
    late_ms = [stored_ms[number] - due_ms[number] for number in stored_ms.keys() & due_ms.keys()]
    demo.check(
        f"{sum(late < 0 for late in late_ms)} were early, the last was {max(late_ms, default=0)} ms late",
        min(late_ms, default=0) >= 0,
    )


def show_transactions(demo: Demo, client: Client) -> None:
    """Tie a purchase and its parcel to a row of a database; let the database decide where a shop died."""
    demo.step(
        f"Transactions: {PURCHASE_COUNT} purchases, each a row of SQLite and a message of two topics"
    )
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as database:
        database.execute(
            "CREATE TABLE purchases (number INTEGER PRIMARY KEY, country TEXT CHECK (country != 'MOON'))"
        )
        for number in range(PURCHASE_COUNT):
            with (
                suppress(sqlite3.IntegrityError),
                client.transaction(
                    PURCHASES, transaction_id=f"{PURCHASES}-{number}"
                ) as transaction,
            ):
                transaction.send(b"%d" % number)
                transaction.send(b"%d" % number, topic=PARCELS)
                add_row(database, number)
        kept = numbers_in(database)
        demo.check(
            f"{len(kept)} rows, {PURCHASE_COUNT - len(kept)} refused;"
            f" {len(bodies(client, PURCHASES))} purchases and {len(bodies(client, PARCELS))} parcels are seen",
            seen(client, PURCHASES) == seen(client, PARCELS) == kept,
        )
        for number in range(PURCHASE_COUNT, PURCHASE_COUNT + CRASHED_COUNT):
            crashed = client.transaction(
                PURCHASES, transaction_id=f"{PURCHASES}-{number}", immunity_s=1
            )
            crashed.send(b"%d" % number)
            crashed.send(b"%d" % number, topic=PARCELS)
            if number % 2:
                add_row(database, number)
        left = len(pending(client))
        asked: list[str] = []

        def decide(check: TransactionCheck) -> bool:
            asked.append(check.transaction_id)
            return int(check.transaction_id.rpartition("-")[2]) in numbers_in(database)

        with client.transaction_checker([PURCHASES, PARCELS], decide):
            ended = wait_until(lambda: not pending(client))
        kept = numbers_in(database)
        demo.check(
            f"a shop died and left {left} open; the writer asked about {len(set(asked))}:"
            f" now {len(kept)} rows, {len(bodies(client, PURCHASES))} purchases,"
            f" {len(bodies(client, PARCELS))} parcels, the same ones",
            ended
            and left == CRASHED_COUNT
            and seen(client, PURCHASES) == seen(client, PARCELS) == kept,
        )


def add_row(database: sqlite3.Connection, number: int) -> None:
    """Add a purchase to the database. Raises sqlite3.IntegrityError for some."""
    country = "MOON" if number % FOREIGN_EVERY == 0 else "NL"
    with database:
        database.execute("INSERT INTO purchases VALUES (?, ?)", (number, country))


def numbers_in(database: sqlite3.Connection) -> list[int]:
    """Return the numbers of the purchases in the database, ascending."""
    return [number for (number,) in database.execute("SELECT number FROM purchases ORDER BY 1")]


def pending(client: Client) -> list[PendingTransaction]:
    """Return the transactions of purchases that nobody has ended."""
    return [each for each in client.pending_transactions() if PURCHASES in each.topics]


def bodies(client: Client, topic: str) -> list[bytes]:
    """Return the bodies of a topic's messages."""
    return [record.body for record in client.consume(topic, follow=False)]


def seen(client: Client, topic: str) -> list[int]:
    """Return the numbers that consumers of a topic see, ascending, each as often as it is there."""
    return sorted(map(int, bodies(client, topic)))


def wait_until(holds: Callable[[], bool]) -> bool:
    """Wait until a condition holds, or too long; return whether it does."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True
