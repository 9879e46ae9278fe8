"""The matrix client x scenario: runs its cells, a few at once, and prints it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import known
from lab import Lab, Scenario
from languages import Language
from servers import MakeServer, Server

GREEN, RED, KNOWN, NONE = "ok", "FAILED", "known", "-"


@dataclass(frozen=True)
class Cell:
    """What came of a scenario with a client."""

    server: str
    client: str
    scenario: str
    result: str
    seconds: float = 0.0
    note: str = ""

    def text(self) -> str:
        if self.result == NONE:
            return NONE
        return (
            f"{self.seconds:.1f} s"
            if self.result == GREEN
            else f"{self.result} {self.seconds:.1f} s"
        )


class Servers:
    """The server that scenarios share, and those that one scenario has for itself."""

    def __init__(self, make: MakeServer) -> None:
        self._make = make
        self._stack = contextlib.ExitStack()
        self.shared: Server = self._stack.enter_context(make("shared", {}))

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def of(self, scenario: Scenario, name: str):
        """The server of the cell of that name. A reference is shared but by who kills it: a JVM is large."""
        if scenario.own_server is None or (scenario.own_server and self.shared.name != "penstock"):
            yield self.shared
            return
        with self._make(name, dict(scenario.own_server)) as own:
            yield own


def run_cells(
    servers: Servers,
    languages: Sequence[Language],
    scenarios: Sequence[Scenario],
    folder: Path,
    at_once: int,
) -> list[Cell]:
    """Run every scenario with every client; print each cell as one JSON line when it is known.

    Up to three red cells are run once more, alone, for clients that fail in their own start-up on a
    busy machine; what failed first stays in the note.
    """
    pairs = [(scenario, language) for language in languages for scenario in scenarios]
    pairs.sort(
        key=lambda pair: not (pair[0].slow or pair[0].own_server is not None)
    )  # the long ones first
    printing = threading.Lock()

    def one(pair: tuple[Scenario, Language], again: str = "") -> Cell:
        cell = run_cell(servers, *pair, folder, again)
        with printing:
            print(json.dumps(asdict(cell)), flush=True)
        return cell

    with ThreadPoolExecutor(at_once) as pool:
        cells = list(pool.map(one, pairs))
    red = [number for number, cell in enumerate(cells) if cell.result == RED]
    for number in red if len(red) <= 3 else []:
        first = cells[number].note
        again = one(pairs[number], "-again")
        cells[number] = replace(again, note=f"{again.note} (failed at first: {first})".strip())
    return cells


def run_cell(
    servers: Servers, scenario: Scenario, language: Language, folder: Path, again: str
) -> Cell:
    """Run one scenario with one client and judge what came of it; ``again`` ends names of a second run."""
    server = servers.shared.name
    if (
        scenario.needs & language.lacks
        or (scenario.tls and not language.tls)
        or (scenario.penstock_only and server != "penstock")
        or (scenario.plaintext_only and servers.shared.authority is not None)
    ):
        return Cell(server, language.name, scenario.name, NONE)
    reason = known.why(server, language.name, scenario.name)
    began = time.monotonic()
    try:
        with (
            servers.of(scenario, f"{scenario.name}-{language.name}{again}") as own,
            Lab(scenario.name + again, own, language, folder, scenario.tls) as lab,
        ):
            began = time.monotonic()
            note = scenario.run(lab) or ""
    except Exception as error:  # noqa: BLE001  every failure is a cell
        (folder / f"{scenario.name}-{language.name}{again}.txt").write_text(traceback.format_exc())
        seconds = time.monotonic() - began
        note = (
            f"{type(error).__name__}: {error}"
            if not isinstance(error, AssertionError)
            else str(error)
        )
        note = note.splitlines()[0][:200] if note else "AssertionError"
        result = KNOWN if reason else RED
        return Cell(
            server,
            language.name,
            scenario.name,
            result,
            seconds,
            f"{reason}: {note}" if reason else note,
        )
    return Cell(server, language.name, scenario.name, GREEN, time.monotonic() - began, note)


def print_matrix(cells: Iterable[Cell], scenarios: Sequence[Scenario]) -> None:
    """Print scenarios as rows, clients (of each server) as columns, then the notes."""
    cells = list(cells)
    columns = sorted({(cell.client, cell.server) for cell in cells})
    several = len({server for _, server in columns}) > 1
    heads = [f"{client} {server}" if several else client for client, server in columns]
    found = {(cell.client, cell.server, cell.scenario): cell for cell in cells}
    wide = max(len(scenario.name) for scenario in scenarios)
    widths = [max(len(head), 14) for head in heads]
    print(
        "\n" + " " * wide,
        *(head.rjust(width) for head, width in zip(heads, widths, strict=True)),
        sep="  ",
    )
    for scenario in scenarios:
        row = [found.get((*column, scenario.name)) for column in columns]
        texts = (cell.text() if cell else "" for cell in row)
        print(
            scenario.name.ljust(wide),
            *(t.rjust(w) for t, w in zip(texts, widths, strict=True)),
            sep="  ",
        )
    print()
    for cell in cells:
        if cell.note:
            print(f"{cell.server} {cell.client} {cell.scenario}: {cell.result}: {cell.note}")
    counts = Counter(cell.result for cell in cells)
    print(f"{counts[GREEN]} passed, {counts[RED]} failed, {counts[KNOWN]} known to fail")
