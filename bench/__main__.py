"""Every figure, each beside its limit, in one run: ``python -m bench [--quick] [--only NAME]...``.

Prints one table and writes everything measured to ``bench/results/`` as JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from bench import append, kernels, memory, produce, producer, pull, restart, secure
from bench.figures import Figure, keep, show
from bench.gateway import idle_clients, pushed
from bench.latency import cleaning, trickle
from bench.leases import receive
from bench.producers import sequences
from bench.reads import validation
from bench.timers import pending
from bench.transactions import ends
from bench.upkeep import scrub, scrub_beside_load
from penstock.errors import PenstockError

RESULTS: Final = Path(__file__).parent / "results"
KERNELS_SHOWN: Final = ("ConsumeQueue build", "index build")  # of what bench.kernels measures


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure."""

    append_rounds: int
    append_batches: int
    long_rounds: int
    long_seconds: float
    kernel_rounds: int
    service_rounds: int
    producer_rounds: int
    restart_gib: float
    restart_rounds: int
    settle_seconds: float
    trickle_rounds: int
    timers: int
    idle_clients: int
    idle_seconds: float


FULL: Final = Effort(
    append_rounds=21,
    append_batches=512,
    long_rounds=3,
    long_seconds=5,
    kernel_rounds=7,
    service_rounds=15,
    producer_rounds=3,
    restart_gib=4,
    restart_rounds=3,
    settle_seconds=3,
    trickle_rounds=3,
    timers=10_000_000,
    idle_clients=2_000,
    idle_seconds=40,
)
QUICK: Final = Effort(
    append_rounds=7,
    append_batches=256,
    long_rounds=1,
    long_seconds=2,
    kernel_rounds=3,
    service_rounds=3,
    producer_rounds=1,
    restart_gib=0.25,
    restart_rounds=1,
    settle_seconds=1,
    trickle_rounds=1,
    timers=500_000,
    idle_clients=200,
    idle_seconds=10,
)


def of_kernel(measure: kernels.KernelFigure) -> Figure:
    """Put a kernel's rate into the common form."""
    return Figure(
        name=measure.name,
        value=measure.rate,
        unit=measure.unit,
        wanted=measure.wanted,
        reached=measure.reached,
        rounds=[(rate, None) for rate in measure.rounds],
    )


def _append(effort: Effort, directory: Path) -> list[Figure]:
    bursts = append.run_bursts(
        directory, rounds=effort.append_rounds, batches=effort.append_batches
    )
    long = append.run_long(directory, rounds=effort.long_rounds, seconds=effort.long_seconds)
    return [long, *bursts]


def _kernels(effort: Effort, directory: Path) -> list[Figure]:
    measures = kernels.run(directory, effort.kernel_rounds)
    return [of_kernel(each) for each in measures if each.name.startswith(KERNELS_SHOWN)]


def _produce(effort: Effort, _directory: Path) -> list[Figure]:
    return produce.run(
        rounds=effort.service_rounds,
        long_rounds=effort.long_rounds,
        seconds=effort.long_seconds,
    )


def _producer(effort: Effort, _directory: Path) -> list[Figure]:
    return producer.run(rounds=effort.producer_rounds, seconds=effort.long_seconds)


def _sequences(effort: Effort, _directory: Path) -> list[Figure]:
    return sequences.run(rounds=effort.service_rounds)


def _pull(effort: Effort, _directory: Path) -> list[Figure]:
    return pull.run(rounds=effort.service_rounds)


def _secure(effort: Effort, _directory: Path) -> list[Figure]:
    return secure.run(rounds=effort.producer_rounds + 2)


def _validation(effort: Effort, directory: Path) -> list[Figure]:
    return validation.run(directory, rounds=3 * effort.service_rounds)


def _lease(effort: Effort, _directory: Path) -> list[Figure]:
    return receive.run(rounds=effort.service_rounds)


def _transactions(effort: Effort, _directory: Path) -> list[Figure]:
    return ends.run(rounds=effort.producer_rounds)


def _timers(effort: Effort, directory: Path) -> list[Figure]:
    return pending.run(
        count=effort.timers, deliver=effort.timers // 10, seconds=effort.long_seconds,
        directory=directory,
    )  # fmt: skip


def _gateway(effort: Effort, _directory: Path) -> list[Figure]:
    idle = idle_clients.run(clients=effort.idle_clients, seconds=effort.idle_seconds, queries=False)
    return idle + pushed.run(rounds=effort.trickle_rounds, seconds=effort.long_seconds)


def _restart(effort: Effort, directory: Path) -> list[Figure]:
    return restart.run(gib=effort.restart_gib, rounds=effort.restart_rounds, directory=directory)


def _trickle(effort: Effort, _directory: Path) -> list[Figure]:
    return trickle.run(rounds=effort.trickle_rounds, seconds=effort.long_seconds)


def _retention(effort: Effort, _directory: Path) -> list[Figure]:
    return cleaning.run(rounds=effort.trickle_rounds)


def _scrub(effort: Effort, directory: Path) -> list[Figure]:
    alone = scrub.run(directory, rounds=effort.kernel_rounds)
    return alone + scrub_beside_load.run(rounds=effort.service_rounds)


def _memory(effort: Effort, _directory: Path) -> list[Figure]:
    return memory.run(settle_seconds=effort.settle_seconds)


BENCHES: Final[Mapping[str, Callable[[Effort, Path], list[Figure]]]] = {
    "append": _append,
    "produce": _produce,
    "producer": _producer,
    "sequences": _sequences,
    "pull": _pull,
    "secure": _secure,
    "validation": _validation,
    "lease": _lease,
    "transaction": _transactions,
    "timers": _timers,
    "gateway": _gateway,
    "kernels": _kernels,
    "restart": _restart,
    "memory": _memory,
    "trickle": _trickle,
    "retention": _retention,
    "scrub": _scrub,
}


def run(
    effort: Effort, names: Sequence[str], directory: Path
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
            figures += BENCHES[name](effort, directory)
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
    figures, failures = run(QUICK if arguments.quick else FULL, names, arguments.store)
    show(figures)
    path = arguments.json or RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    keep(path, figures, options={"quick": arguments.quick, "benches": names, "failures": failures})
    print(f"written to {path}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
