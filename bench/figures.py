"""A figure beside its limit: what every bench hands back, and how it is shown and kept."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

WIDTH: Final = 220  # where no terminal says
PACKAGES: Final = ("grpcio", "numba", "numpy", "isal", "protobuf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value, its limit in the same rounds where it has one, and what is asked.

    ``value`` and ``limit`` are medians over ``rounds``, each ``(value, limit)``; ``refused`` is how
    often something was refused for the moment and sent again, in all rounds of the value, None where
    nothing can be; ``load`` is the machine's load average when the figure was done.
    """

    name: str
    value: float
    unit: str
    reached: bool
    wanted: str
    limit: float | None = None
    limit_name: str = ""
    ratio: float | None = None
    refused: int | None = None
    rounds: Sequence[tuple[float, float | None]] = ()
    load: float = field(default_factory=lambda: os.getloadavg()[0])


def alternate(
    value: Callable[[], float],
    limit: Callable[[], float],
    *,
    rounds: int,
    rest: Callable[[], None] = lambda: None,
) -> list[tuple[float, float]]:
    """Measure both sides in turn, after one round that does not count; ``rest`` after each value.

    A shared machine's speed changes from one second to the next, so only neighbours compare.
    """
    pairs = []
    for number in range(rounds + 1):
        bound = limit()
        reached = value()
        rest()
        if number:
            pairs.append((reached, bound))
    return pairs


def median_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the median of each round's ratio."""
    return statistics.median(value / limit for value, limit in pairs)


def beside(
    name: str,
    unit: str,
    pairs: Sequence[tuple[float, float]],
    *,
    limit_name: str,
    wanted: str,
    is_reached: Callable[[float, float], bool],
    refused: int | None = None,
) -> Figure:
    """Return the figure of rounds with a limit in each; ``is_reached`` is asked of its value and ratio.

    A limit that is too small to be measured counts as a thousandth in the ratio.
    """
    value = statistics.median(value for value, _ in pairs)
    ratio = median_ratio([(value, max(limit, 1e-3)) for value, limit in pairs])
    return Figure(
        name=name,
        value=value,
        unit=unit,
        limit=statistics.median(limit for _, limit in pairs),
        limit_name=limit_name,
        ratio=ratio,
        refused=refused,
        wanted=wanted,
        reached=is_reached(value, ratio),
        rounds=pairs,
    )


def seconds_of(work: Callable[[], Any]) -> float:
    """Return how long ``work`` takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def table(figures: Sequence[Figure]) -> Table:
    """Lay the figures out for a terminal."""
    result = Table(title="Figures, each beside its limit in the same run")
    numeric = ("median", "lowest .. highest", "limit beside it", "ratio", "refused", "load")
    for heading in ("measure", *numeric[:5], "wanted", "reached", "load"):
        result.add_column(heading, justify="right" if heading in numeric else "left")
    for each in figures:
        limit = "" if each.limit is None else f"{_number(each.limit)} {each.limit_name}"
        result.add_row(
            each.name,
            f"{_number(each.value)} {each.unit}",
            _spread(each),
            limit,
            _ratio(each),
            "" if each.refused is None else f"{each.refused:,}",
            each.wanted,
            "[green]yes[/]" if each.reached else "[bold red]no[/]",
            f"{each.load:.1f}",
        )
    return result


def _spread(figure: Figure) -> str:
    values = [value for value, _ in figure.rounds]
    return f"{_number(min(values))} .. {_number(max(values))}" if len(values) > 1 else ""


def _ratio(figure: Figure) -> str:
    """Return the ratio, with its quartiles where there are four rounds."""
    if figure.ratio is None:
        return ""
    ratios = [value / limit for value, limit in figure.rounds if limit]
    if len(ratios) < 4:
        return f"{figure.ratio:.2f}"
    low, _, high = statistics.quantiles(ratios, n=4)
    return f"{figure.ratio:.2f} ({low:.2f} .. {high:.2f})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def document(figures: Sequence[Figure], *, options: dict[str, Any]) -> dict[str, Any]:
    """Return the figures and the machine they are from, for JSON."""
    return {
        "machine": {
            "processor": _processor(),
            "processors": os.cpu_count(),
            "kernel": platform.release(),
            "python": sys.version.split()[0],
            "packages": {name: version(name) for name in PACKAGES},
        },
        "options": options,
        "figures": [asdict(figure) for figure in figures],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")


def show(figures: Sequence[Figure]) -> None:
    """Print the table."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    console.print(table(figures))


def keep(path: Path, figures: Sequence[Figure], *, options: dict[str, Any]) -> None:
    """Write figures and machine as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(figures, options=options), indent=1) + "\n")


def command(run: Callable[..., Sequence[Figure]]) -> None:
    """Run one bench from the command line and print its figures; the arguments of ``run`` are its options."""
    about = (run.__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    for name, each in inspect.signature(run).parameters.items():
        option, default = f"--{name.replace('_', '-')}", each.default
        parser.add_argument(option, type=type(default), default=default, help=" ")
    show(run(**vars(parser.parse_args())))
