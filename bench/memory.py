"""Resident memory of the three services while they are idle: ``python -m bench.memory``."""

from __future__ import annotations

import time
from typing import Final

import grpc

from bench import drivers
from bench.figures import Figure, command
from penstock.v1 import writer_pb2, writer_pb2_grpc
from services import loops

MIB_WANTED: Final = 250
SETTLE_SECONDS: Final = 3.0


async def _create_topic(writer: str) -> None:
    async with grpc.aio.insecure_channel(writer) as channel:
        stub = drivers.stub(writer_pb2_grpc.WriterStub, channel)
        await stub.CreateTopic(writer_pb2.CreateTopicRequest(name="idle", queue_count=8))


def run(*, settle_seconds: float = SETTLE_SECONDS) -> list[Figure]:
    """Start all three on an empty store, wait a little, and look."""
    with (
        drivers.scratch_store() as store,
        drivers.service("writer", store) as (address, writer),
        drivers.service("reader", store) as (_, reader),
        drivers.service("indexer", store) as (_, indexer),
    ):  # fmt: skip
        loops.run(_create_topic(address))
        time.sleep(settle_seconds)
        figures = []
        for name, process_id in (("writer", writer), ("reader", reader), ("indexer", indexer)):
            mib = drivers.resident_mib(process_id)
            figures.append(
                Figure(
                    name=f"resident memory of an idle {name}",
                    value=mib,
                    unit="MiB",
                    wanted=f"{MIB_WANTED} MB",
                    reached=mib * (1 << 20) <= MIB_WANTED * 1e6,
                )
            )
        return figures


if __name__ == "__main__":
    command(run)
