"""What is asked of a store after its services have ended, whatever they met."""

from __future__ import annotations

from pathlib import Path

from fault_ledger import Ledger, Verdict, judge, require
from service_load import ServiceLoad
from service_trio import ServiceTrio

from storage.reader import StoreReader


def require_documented(trio: ServiceTrio, load: ServiceLoad) -> None:
    """Raise FaultFound if a caller got what no page explains, or a service wrote a traceback."""
    require(not load.problems, load.problems[:5])
    output = trio.output()
    require("Traceback" not in output, output[-4000:])


def require_kept(store: Path, ledger: Ledger) -> None:
    """Raise FaultFound unless stopped services left all that was acknowledged and seen, and nothing else."""
    with StoreReader.open(store) as reader:
        verdict = judge(reader, ledger)
    require(verdict == Verdict(), verdict)


def finish(trio: ServiceTrio, load: ServiceLoad) -> None:
    """Let running services finish their work, stop them and hold the store against the ledger."""
    end = load.client.writer_status().appended_offset
    load.client.wait_indexed(end, timeout_s=60)
    load.stop()
    trio.stop()
    require_documented(trio, load)
    require_kept(trio.store, load.ledger)
