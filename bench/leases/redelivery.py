"""How late messages come again: after the end of their lease, and after they were given back."""

from __future__ import annotations

from typing import Final

from bench.figures import Figure
from penstock import Client

TIMES: Final = 100
LEASE_MS: Final = 200
LATE_MS: Final = 50.0
GROUP: Final = "late"
TOPIC: Final = "again"


def _lateness_ms(client: Client, *, gives_back: bool) -> float:
    received = client.receive(TOPIC, group=GROUP, lease_ms=LEASE_MS, wait_ms=5_000)
    if gives_back:
        due = client.clock.now_ms() + LEASE_MS
        client.change_leases(received, LEASE_MS)
    else:
        due = received.lease_end_ms
    again = client.receive(TOPIC, group=GROUP, wait_ms=5_000)
    late = client.clock.now_ms() - due
    if len(again.records) != 1:
        raise RuntimeError("the message did not come again")
    client.change_leases(again, 0)
    return float(late)


def measure(writer: str, reader: str) -> list[Figure]:
    """Lease one message again and again, and wait for it."""
    figures = []
    with Client(writer=writer, reader=reader) as client:
        client.create_topic(TOPIC, queues=1)
        client.create_group(GROUP, retry_max_times=16 * TIMES)
        client.produce(TOPIC, b"again")
        for name, gives_back in (("the end of a lease", False), ("a nack's delay", True)):
            late = sorted(_lateness_ms(client, gives_back=gives_back) for _ in range(TIMES))
            figures.append(
                Figure(
                    name=f"handed out again after {name}: latest of {TIMES}", value=late[-1],
                    unit="ms late", wanted=f"{LATE_MS:.0f} ms", reached=late[-1] <= LATE_MS,
                    rounds=[(each, None) for each in late],
                )
            )  # fmt: skip
    return figures
