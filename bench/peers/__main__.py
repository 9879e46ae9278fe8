"""Compare Penstock with RocketMQ, Kafka, NATS JetStream and Redis Streams: ``python -m bench.peers [--quick]``.

Bare is the transport that Penstock is on, without a store: what bounds it.

Each cell is measured on each peer in turn, in so many rounds; one table shows medians and ratios, and
``bench/results/`` keeps everything as JSON. What is not installed is named, and its peer left out.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from bench.peers.bare_peer import BarePeer
from bench.peers.cells import CELLS, FULL, QUICK, Measured
from bench.peers.comparison import compare, markdown
from bench.peers.generator import LoadFailed
from bench.peers.jvm_peers import KafkaPeer, RocketmqPeer
from bench.peers.measure import measure
from bench.peers.native_peers import NatsPeer, RedisPeer
from bench.peers.peer import Peer
from bench.peers.penstock_peer import PenstockPeer
from bench.peers.software import ToolMissing

PEERS: Final[tuple[type[Peer], ...]] = (
    PenstockPeer, BarePeer, RocketmqPeer, KafkaPeer, NatsPeer, RedisPeer,
)  # fmt: skip
RESULTS: Final = Path(__file__).parents[1] / "results"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small and short: does it work at all?"
    )
    parser.add_argument("--rounds", type=int, help="measure each cell so often")
    parser.add_argument("--seconds", type=float, help="length of a measured window")
    parser.add_argument(
        "--only", action="append", metavar="WORD", help="cells whose name has the word"
    )
    parser.add_argument(
        "--peer", action="append", choices=[kind.name for kind in PEERS[1:]], help="only these"
    )
    parser.add_argument(
        "--data", type=Path, help="where stores are made; not a file system in memory"
    )
    return parser.parse_args()


def _prepared(wanted: list[str] | None) -> dict[type[Peer], str]:
    """Return the peers that can be run, with their versions; say of the others what they want."""
    versions: dict[type[Peer], str] = {}
    for kind in PEERS:
        if wanted and kind is not PenstockPeer and kind.name not in wanted:
            continue
        try:
            versions[kind] = kind.prepare()
        except ToolMissing as missing:
            print(f"{kind.name} is left out: {missing}", flush=True)
    return versions


def main() -> int:
    """Measure, print and keep; return 1 if a measurement failed."""
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # servers are ended, and their data goes
    options = _options()
    campaign = QUICK if options.quick else FULL
    campaign = campaign._replace(
        rounds=options.rounds or campaign.rounds, seconds=options.seconds or campaign.seconds
    )
    cells = [
        cell
        for cell in CELLS
        if not options.only or any(word in cell.name for word in options.only)
    ]
    versions = _prepared(options.peer)
    measured: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    failures = []
    for number in range(1, campaign.rounds + 1):
        for cell in cells:
            for kind in versions:
                if not kind.measures(cell):
                    continue
                began = time.monotonic()
                try:
                    result = measure(kind, cell, campaign, options.data)
                except (LoadFailed, RuntimeError, OSError, subprocess.SubprocessError) as error:
                    failures.append(f"{kind.name}, {cell.name}: {error}")
                    print(f"FAILED {failures[-1]}", flush=True)
                    continue
                measured[kind.name, cell.name].append(result)
                shown = ", ".join(f"{result[row.key]:,.4g} {row.unit}" for row in cell.rows)
                took = time.monotonic() - began
                print(f"{number} {took:4.0f} s {kind.name}, {cell.name}: {shown}", flush=True)
    rows = compare(cells, measured)
    peers = [kind.name for kind in versions]
    shown = markdown(rows, peers)
    told_versions = ", ".join(f"{kind.name} {told}" for kind, told in versions.items())
    print(f"\n{shown}\n\n{told_versions}")
    RESULTS.mkdir(exist_ok=True)
    result_file = RESULTS / time.strftime("peers-%Y-%m-%dT%H%M%S.json")
    result_file.with_suffix(".md").write_text(f"{shown}\n\n{told_versions}\n")
    result_file.write_text(
        json.dumps(
            {
                "command": sys.argv[1:],
                "campaign": campaign._asdict(),
                "versions": {kind.name: told for kind, told in versions.items()},
                "processors": os.cpu_count(),
                "load": os.getloadavg()[0],
                "rows": [{**each.row._asdict(), "rounds": each.rounds} for each in rows],
                "failures": failures,
            },
            indent=1,
        )
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
