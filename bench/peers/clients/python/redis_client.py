"""Load on Redis Streams by redis-py."""

from __future__ import annotations

import redis

from bench.peers.clients.python.meter import ARGUMENTS, BODIES, Passes, Window, number, payloads

ENTRIES_A_CALL = 1024


def connect() -> redis.Redis:
    """Return a client of the server."""
    host, _, port = ARGUMENTS["address"].rpartition(":")
    return redis.Redis(host, int(port))


def produce(size_bytes: int, batch: int) -> None:
    """Send one pipeline of XADDs after the other: the client is synchronous."""
    client, bodies, window, sent = connect(), payloads(size_bytes), Window(), 0
    while window.going():
        pipeline = client.pipeline(transaction=False)
        for _ in range(batch):
            pipeline.xadd("bench-0", {"d": bodies[sent % BODIES]})
            sent += 1
        window.acknowledged(len(pipeline.execute()))


def consume() -> None:
    """Read by XREAD from the beginning."""
    client, passes, more = connect(), Passes(), True
    while more:
        last, count = b"0", 0
        while count < passes.backlog:
            reply = client.xread({"bench-0": last}, count=ENTRIES_A_CALL)
            entries = reply[0][1] if isinstance(reply, list) else next(iter(reply.values()))[0]
            last = entries[-1][0]
            count += sum(len(fields[b"d"]) > 0 for _, fields in entries)
        more = passes.end(count)


if __name__ == "__main__":
    if ARGUMENTS["operation"] == "consume":
        consume()
    else:
        produce(number("size_bytes", 1024), number("batch", 64))
