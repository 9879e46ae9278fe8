"""What is compared: a cell is one operation at one size, batch and durability, and yields rows of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Operation = Literal["produce", "consume", "latency", "topics", "restart"]
Client = Literal["native", "python"]
Durability = Literal["page cache", "sync"]
Measured = Mapping[str, float]


class Campaign(NamedTuple):
    """How often and how long to measure, and on how much."""

    rounds: int
    seconds: float
    warm_up: float  # share of the warm-up that a peer wants
    backlog_messages: int
    restart_mib: int
    topics: int


FULL: Final = Campaign(3, 5, 1, 1_000_000, 1024, 1000)
QUICK: Final = Campaign(1, 1, 0.1, 20_480, 16, 20)


class Row(NamedTuple):
    """One value of a measurement: its name in the table, its unit, and whether less of it is better."""

    name: str
    key: str
    unit: str
    is_cost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One operation and its sizes; ``client`` is the fastest there is (Java or Go), or the one for Python."""

    name: str
    operation: Operation
    client: Client = "native"
    size_bytes: int = 1024
    batch: int = 64
    in_flight: int = 64
    durability: Durability = "page cache"
    rate: int = 1000
    is_stream: bool = False  # of Penstock: one message a request is a frame on one stream

    @property
    def is_of_store(self) -> bool:
        """Whether it measures what only a store does."""
        return self.durability == "sync" or self.operation in ("topics", "restart")

    @property
    def rows(self) -> list[Row]:
        """What of this cell the table shows."""
        if self.operation == "latency":
            return [
                Row(f"{self.name}, p50", "p50_ms", "ms", is_cost=True),
                Row(f"{self.name}, p99", "p99_ms", "ms", is_cost=True),
                Row(
                    f"{self.name}, CPU of the servers", "server_cpu_s_per_s", "cores", is_cost=True
                ),
            ]
        if self.operation == "topics":
            return [
                Row(f"{self.name}: create them", "create_s", "s", is_cost=True),
                Row(f"{self.name}: produce to all of them", "messages_per_s", "msg/s"),
            ]
        if self.operation == "restart":
            return [Row(self.name, "restart_s", "s", is_cost=True)]
        return [Row(self.name, "messages_per_s", "msg/s")]


CELLS: Final = (
    Cell(name="produce, 1 KiB, 64 a request", operation="produce"),
    Cell(name="produce, 100 B, 64 a request", operation="produce", size_bytes=100),
    Cell(name="produce, 1 KiB, 1 a request", operation="produce", batch=1),
    Cell(
        name="produce, 1 KiB, 1 a frame of one stream", operation="produce", batch=1, is_stream=True
    ),
    Cell(name="produce, sync, 1 KiB, 64 a request", operation="produce", durability="sync"),
    Cell(name="produce, sync, 1 KiB, 1 a request", operation="produce", batch=1, durability="sync"),
    Cell(name="consume, 1 KiB, from the page cache", operation="consume"),
    Cell(name="Python: produce, 1 KiB, 64 a request", operation="produce", client="python"),
    Cell(name="Python: consume, 1 KiB", operation="consume", client="python"),
    Cell(name="1,000 msg/s of 1 KiB from producer to consumer", operation="latency", batch=1),
    Cell(name="many topics", operation="topics"),
    Cell(name="kill -9 to the next acknowledgement", operation="restart"),
)
