"""Rate and p99 against load, measured and plotted: ``python -m bench.load [--svg FILE]``.

Each point is a window of a fresh ``penstock serve`` under one load of the Go client: so many requests open,
or so many messages a second from producer to consumer. The lines of a picture are of one run. Matplotlib
draws, in an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any, Final

from bench.peers import software
from bench.peers.cells import Campaign, Cell
from bench.peers.measure import measure
from bench.peers.penstock_peer import PenstockPeer

MATPLOTLIB: Final = "matplotlib==3.11.2"
RESULTS: Final = Path(__file__).parent / "results"
OPEN_REQUESTS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
RATES: Final = (200, 500, 1_000, 2_000, 4_000, 8_000, 12_000)
Line = dict[str, Any]
"""A panel, a name, and points: rates in messages per second, and p50 and p99 in milliseconds."""

PRODUCE: Final = "produce: to the acknowledgement"
CONSUME: Final = "from producer to consumer"
CLOSED: Final = (
    ("64 messages of 1 KiB a frame", Cell(name="", operation="produce")),
    ("1 message a frame", Cell(name="", operation="produce", batch=1, is_stream=True)),
    ("1 message a call", Cell(name="", operation="produce", batch=1)),
)


def lines(seconds: float) -> list[Line]:
    """Measure all lines of the picture."""
    # After the whole warm-up: the first seconds of a service take half as much.
    campaign = Campaign(1, seconds, 1, 0, 0, 1)
    loads: list[tuple[str, str, list[Cell]]] = [
        (PRODUCE, name, [_with(cell, in_flight=count) for count in OPEN_REQUESTS])
        for name, cell in CLOSED
    ]
    paced = Cell(name="", operation="latency", batch=1)
    loads.append(
        (CONSUME, "1 message of 1 KiB a frame", [_with(paced, rate=rate) for rate in RATES])
    )
    found = []
    for panel, name, cells in loads:
        points = []
        for cell in cells:
            measured = measure(PenstockPeer, cell, campaign)
            points.append([measured["messages_per_s"], measured["p50_ms"], measured["p99_ms"]])
            print(f"{panel}, {name}: {points[-1]}", flush=True)
        found.append({"panel": panel, "name": name, "points": points})
    return found


def _with(cell: Cell, **changes: Any) -> Cell:
    fields = {name: getattr(cell, name) for name in cell.__slots__}
    return Cell(**{**fields, **changes})


def main() -> None:
    """Measure, keep the numbers, and draw them."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4, help="length of a measured window")
    parser.add_argument("--svg", type=Path, default=RESULTS / "load.svg", help="the picture")
    options = parser.parse_args()
    PenstockPeer.prepare()
    text = json.dumps(lines(options.seconds))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "load.json").write_text(text)
    draw = [software.python_with(MATPLOTLIB), Path(__file__).with_name("load_plot.py"), options.svg]
    subprocess.run(draw, input=text, text=True, check=True)
    print(options.svg)


if __name__ == "__main__":
    main()
