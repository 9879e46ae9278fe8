"""Measures one cell on one peer, on a fresh directory."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.peers import generator
from bench.peers.cells import Campaign, Cell, Measured
from bench.peers.peer import Peer

FILL_BATCH: Final = 64
FILL_IN_FLIGHT: Final = 16
REST_BEFORE_RESTART_S: Final = 2.0


def measure(
    kind: type[Peer], cell: Cell, campaign: Campaign, directory: Path | None = None
) -> Measured:
    """Start a peer, measure a cell and remove the peer's data. Raises LoadFailed, or RuntimeError."""
    data = Path(tempfile.mkdtemp(prefix=f"penstock-peers-{kind.name}-", dir=directory))
    peer = kind(data, cell)
    try:
        peer.start()
        return _operation(peer, cell, campaign)
    finally:
        peer.close()
        shutil.rmtree(data, ignore_errors=True)


def _operation(peer: Peer, cell: Cell, campaign: Campaign) -> Measured:
    topics = campaign.topics if cell.operation == "topics" else 1
    create_s = peer.create_topics(topics)
    wanted: dict[str, object] = {
        "operation": "produce" if cell.operation == "topics" else cell.operation,
        "size_bytes": cell.size_bytes,
        "batch": cell.batch,
        "in_flight": cell.in_flight,
        "seconds": campaign.seconds,
        "warm_up_s": max(0.2, peer.warm_up_s * campaign.warm_up),
        "topics": topics,
        "rate": cell.rate,
        "shape": "stream" if cell.is_stream else "calls",
        **peer.arguments,
    }
    if cell.operation == "restart":
        return _restart(peer, wanted, (campaign.restart_mib << 20) // cell.size_bytes)
    if cell.operation == "consume":
        _fill(peer, wanted, campaign.backlog_messages)
        wanted["messages"] = campaign.backlog_messages
    measured = generator.run(peer.client, wanted, servers=peer.process_ids)
    return {**measured, "create_s": create_s}


def _fill(peer: Peer, wanted: dict[str, object], messages: int) -> None:
    """Write a backlog of whole batches."""
    backlog = {
        "operation": "produce", "messages": messages, "batch": FILL_BATCH, "in_flight": FILL_IN_FLIGHT,
    }  # fmt: skip
    stored = generator.run(peer.native_client, wanted | backlog)["messages"]
    if stored != messages:
        raise generator.LoadFailed(f"{stored} of {messages} messages of the backlog were stored")


def _restart(peer: Peer, wanted: dict[str, object], messages: int) -> Measured:
    """Kill a server that has so much log, start it, and time until a client has an answer."""
    _fill(peer, wanted, messages // FILL_BATCH * FILL_BATCH)
    time.sleep(REST_BEFORE_RESTART_S)
    started_at = 0.0

    def restart() -> None:
        nonlocal started_at
        peer.kill()
        started_at = time.time()  # noqa: TID251  the client's clock
        peer.start_again()

    measured = generator.run(peer.native_client, wanted, restart=restart)
    return {"restart_s": measured["acknowledged_at"] - started_at}
