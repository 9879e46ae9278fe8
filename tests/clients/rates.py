"""Rates of the official clients with Penstock and with RocketMQ 5.3.3, round by round.

Beside each rate is the processor time that the client itself takes for a message, warming included: no
server makes a client faster that uses one processor and that long for each.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalogue import TLS
from drivers import Driver
from lab import Lab
from languages import LANGUAGES, Language
from servers import MakeServer, Server

SIZE = 1024
IN_FLIGHT = 64
LATENCY_RATE = 200


@dataclass(frozen=True)
class Figure:
    """One line of the table: what is measured, with which client, and what it has to be beside the proxy's."""

    client: str
    command: str
    unit: str
    goal: float  # of Penstock's value divided by the proxy's


FIGURES = (
    Figure("python", "bench_send", "msg/s", 2.0),
    Figure("python", "bench_receive", "msg/s", 2.0),
    Figure("java", "bench_send", "msg/s", 1.0),
    Figure("java", "bench_push", "msg/s", 1.0),
    Figure("go", "bench_send", "msg/s", 1.0),
    Figure("go", "bench_push", "msg/s", 1.0),
    Figure("java", "bench_latency", "p99 ms", 0.5),
    Figure("go", "bench_latency", "p99 ms", 0.5),
)


def measure(
    server: Server, seconds: float, folder: Path, language: Language
) -> dict[Figure, float]:
    """Return the figures of one client and one run of a server. What consumers get is what was sent before."""
    values = {}
    with Lab("bench", server, language, folder, language.tls) as lab:
        driver, topic = lab.driver(), lab.topic()
        sent = 0
        for figure in (figure for figure in FIGURES if figure.client == language.name):
            before = driver.cpu_seconds()
            found = run(figure, lab, driver, topic, seconds, sent)
            used = driver.cpu_seconds() - before
            found["client_cpu_us"] = round(used / _handled(figure, found, seconds) * 1e6)
            sent = found["count"] if figure.command == "bench_send" else sent
            value = (
                found["p99_ms"] if figure.unit == "p99 ms" else found["count"] / found["seconds"]
            )
            about = {"server": server.name, "client": language.name, "figure": figure.command}
            print(json.dumps({**about, **found}), flush=True)
            assert not found["errors"], f"{found['errors']} errors"
            values[figure] = value
    return values


def _handled(figure: Figure, found: dict[str, Any], seconds: float) -> float:
    """Return how many messages the driver handled, those of its warming too."""
    if figure.command == "bench_send":
        return float(found["count"]) * (1 + _warm_ms(seconds) / 1000 / found["seconds"])
    return float(found["count"])


def _warm_ms(seconds: float) -> int:
    return max(10_000, int(seconds * 500))


def run(
    figure: Figure, lab: Lab, driver: Driver, topic: str, seconds: float, sent: int
) -> dict[str, Any]:
    """Give one command; a latency has a topic of its own."""
    options: dict[str, Any] = {"topic": topic, "size": SIZE, "in_flight": IN_FLIGHT}
    if figure.command == "bench_send":
        options |= {"warm_ms": _warm_ms(seconds), "run_ms": int(seconds * 1000)}
    elif figure.command == "bench_latency":
        options |= {
            "topic": lab.topic(),
            "group": lab.group(),
            "rate": LATENCY_RATE,
            "count": int(LATENCY_RATE * seconds),
        }
    else:
        options |= {"group": lab.group(), "count": sent}
    found = driver.do(figure.command, timeout=600, **options)
    return {name: value for name, value in found.items() if name not in ("id", "at")}


def compare(
    makers: Mapping[str, MakeServer], clients: list[str], rounds: int, seconds: float, folder: Path
) -> None:
    """Run rounds of each server and print medians side by side."""
    values: dict[tuple[Figure, str], list[float]] = defaultdict(list)
    for number in range(rounds):
        for name, make in makers.items():
            for client in clients:
                language = LANGUAGES[client]
                flags = {TLS: ""} if language.tls else {}
                with make(f"round-{number}-{client}", flags) as server:
                    found = measure(server, seconds, folder / f"{name}-{number}", language)
                for figure, value in found.items():
                    values[figure, name].append(value)
    print(f"\n{'':24}{'penstock':>14}{'rocketmq':>14}{'ratio':>8}{'goal':>8}")
    for figure in FIGURES:
        ours, theirs = (
            statistics.median(values[figure, name] or [math.nan])
            for name in ("penstock", "rocketmq")
        )
        title = f"{figure.client} {figure.command.removeprefix('bench_')}, {figure.unit}"
        print(f"{title:24}{ours:14,.1f}{theirs:14,.1f}{ours / theirs:8.2f}{figure.goal:8.1f}")
