"""The table of a comparison: each row's median by peer, and how many times better Penstock is."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.peers.cells import Cell, Measured, Row

PENSTOCK = "penstock"


class Compared(NamedTuple):
    """One row: what each peer reached in each round."""

    row: Row
    rounds: Mapping[str, Sequence[float]]

    def ratio(self, peer: str) -> float | None:
        """Return how many times better Penstock's median is than a peer's; None where one is missing."""
        ours, theirs = self.rounds.get(PENSTOCK), self.rounds.get(peer)
        if not ours or not theirs:
            return None
        better, worse = statistics.median(ours), statistics.median(theirs)
        if self.row.is_cost:
            better, worse = worse, better
        return better / worse if worse else None


def compare(
    cells: Sequence[Cell], measured: Mapping[tuple[str, str], Sequence[Measured]]
) -> list[Compared]:
    """Return the rows of what was measured, by name of peer and name of cell."""
    found: list[Compared] = []
    for cell in cells:
        by_peer = {peer: rounds for (peer, name), rounds in measured.items() if name == cell.name}
        for row in cell.rows:
            values = {
                peer: [each[row.key] for each in rounds if each.get(row.key)]
                for peer, rounds in by_peer.items()
            }
            found.append(Compared(row, values))
    return found


def markdown(rows: Sequence[Compared], peers: Sequence[str]) -> str:
    """Return the table; a peer's figure has in brackets how many times better Penstock's is."""
    others = [peer for peer in peers if peer != PENSTOCK]
    lines = [
        f"| | Penstock | {' | '.join(map(_title, others))} |",
        f"|---|---|{'---|' * len(others)}",
    ]
    for each in rows:
        shown = [_median(each, PENSTOCK)]
        for peer in others:
            ratio = each.ratio(peer)
            shown.append(_median(each, peer) + ("" if ratio is None else f" ({_number(ratio)} x)"))
        lines.append(f"| {each.row.name}, {each.row.unit} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _title(peer: str) -> str:
    return {"rocketmq": "RocketMQ", "nats": "NATS"}.get(peer, peer.capitalize())


def _median(compared: Compared, peer: str) -> str:
    values = compared.rounds.get(peer)
    return _number(statistics.median(values)) if values else "-"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
