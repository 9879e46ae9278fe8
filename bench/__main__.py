"""Every figure, each beside its limit, in one run: ``python -m bench [--quick] [--only NAME]...``.

Prints one table and writes everything measured to ``bench/results/`` as JSON.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import grpc

from bench import (
    append,
    idle,
    kernels,
    leases,
    produce,
    producer,
    pull,
    restart,
    scrub,
    secure,
    trickle,
)
from bench.figures import Figure, keep, show
from penstock.errors import PenstockError

RESULTS: Final = Path(__file__).parent / "results"
Run = Callable[..., list[Figure]]
BENCHES: Final[Mapping[str, Run]] = {
    "append": append.run,
    "produce": produce.run,
    "producer": producer.run,
    "pull": pull.run,
    "secure": secure.run,
    "lease": leases.run,
    "kernels": kernels.run,
    "restart": restart.run,
    "trickle": trickle.run,
    "idle": idle.run,
    "scrub": scrub.run,
}
QUICK: Final[Mapping[Run, Mapping[str, Any]]] = {
    append.run: {"rounds": 7, "batches": 256, "long_rounds": 1, "long_seconds": 2},
    produce.run: {"rounds": 3, "long_rounds": 1, "seconds": 2},
    producer.run: {"rounds": 1, "seconds": 2},
    pull.run: {"rounds": 3},
    secure.run: {"rounds": 3},
    leases.run: {"rounds": 3},
    kernels.run: {"rounds": 3},
    restart.run: {"gib": 0.25, "rounds": 1},
    trickle.run: {"rounds": 1, "seconds": 2},
    idle.run: {"rounds": 1, "seconds": 5},
    scrub.run: {"rounds": 3},
}


def run(
    names: Sequence[str], directory: Path, *, quick: bool
) -> tuple[list[Figure], dict[str, str]]:
    """Run the benches one after the other, so that none disturbs another.

    Returns the figures, and of each bench that could not be run why; it takes no other with it.
    """
    figures: list[Figure] = []
    failures: dict[str, str] = {}
    for name in names:
        begin = time.perf_counter()
        print(f"{name} ...", end=" ", flush=True)
        try:
            each = BENCHES[name]
            options = dict(QUICK[each]) if quick else {}
            if "directory" in inspect.signature(each).parameters:
                options["directory"] = directory
            figures += each(**options)
        except (RuntimeError, OSError, AssertionError, grpc.RpcError, PenstockError) as error:
            failures[name] = f"{type(error).__name__}: {error}"
            print(f"FAILED: {failures[name]}", flush=True)
        else:
            print(f"{time.perf_counter() - begin:.0f} s", flush=True)
    return figures, failures


def main() -> int:
    """Run from the command line; 1 if a bench could not be run."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument("--only", action="append", choices=BENCHES, help="this bench; repeatable")
    parser.add_argument("--store", type=Path, default=Path(), help="where the files go meanwhile")
    parser.add_argument("--json", type=Path, help="where the results go instead of bench/results/")
    arguments = parser.parse_args()
    names = arguments.only or list(BENCHES)
    figures, failures = run(names, arguments.store, quick=arguments.quick)
    show(figures)
    path = arguments.json or RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    keep(path, figures, options={"quick": arguments.quick, "benches": names, "failures": failures})
    print(f"written to {path}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
