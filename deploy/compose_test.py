"""``make compose-test``: the containers for real, each killed in turn under load, nothing lost.

Builds and starts deploy/compose.yaml under a project name, ports and a volume of its own; every
message that was acknowledged must be there once in the end, whatever happened in between. Says so
and leaves with 0 where no container engine answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from penstock import Client
from penstock.errors import PenstockError, UnknownOutcome

DEPLOY: Final = Path(__file__).resolve().parent
SERVICES: Final = ("writer", "reader", "indexer", "gateway")
TOPIC: Final = "compose-test"
PARCELS: Final = "compose-test-parcels"
GROUP: Final = "compose-test-group"
QUEUES: Final = 4
HEALTHY_SECONDS_MAX: Final = 90.0
LOAD_SECONDS: Final = 3.0
SAMPLED_KEYS: Final = 50
WAKES: Final = 3
WAKE_SECONDS_MAX: Final = 2.0  # far below the wait asked for, far above a wake
# Kills the service as a crash would: the engine sees it end by itself and restarts it.
CRASH: Final = "kill -9 $(cat /proc/1/task/1/children)"


class Failed(Exception):
    """The containers did not do what they should."""


class Compose:
    """One project of ``docker compose`` with ports of its own."""

    def __init__(self) -> None:
        self.project = f"penstock-test-{secrets.token_hex(3)}"
        self.addresses = {name: f"127.0.0.1:{free_port()}" for name in SERVICES}
        ports = {
            f"PENSTOCK_{name.upper()}_PORT": address.rpartition(":")[2]
            for name, address in self.addresses.items()
        }
        self._environment = {
            **os.environ,  # noqa: TID251  the engine's own settings are there
            **ports,
            "PENSTOCK_COMMIT_LOG_FILE_SIZE": "16MiB",
        }

    def __call__(self, *arguments: str, check: bool = True, quiet: bool = True) -> str:
        """Run one command of compose and return its output."""
        command = ["docker", "compose", "--project-name", self.project, "--progress", "quiet"]
        command += ["--file", str(DEPLOY / "compose.yaml"), *arguments]
        done = subprocess.run(
            command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if quiet else None,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise Failed(f"docker compose {' '.join(arguments)}: {(done.stderr or '').strip()}")
        return done.stdout

    def states(self) -> dict[str, dict[str, object]]:
        """Return what the engine says about each service's container."""
        lines = self("ps", "--all", "--format", "json").strip().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return {str(state["Service"]): state for state in found}

    def restarts(self, service: str) -> int:
        """Return how often the engine has restarted a service."""
        identifier = self("ps", "--all", "--quiet", service).strip()
        command = ["docker", "inspect", "--format", "{{.RestartCount}}", identifier]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=True
        )
        return int(done.stdout)


class Load:
    """Produces numbered messages one after the other and remembers which were acknowledged."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self.acknowledged: list[int] = []
        self.unknown: set[int] = set()
        self.refused = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                self._client.produce(
                    TOPIC,
                    body_of(number),
                    keys=(key_of(number),),
                    tag="even" if number % 2 == 0 else "odd",
                    queue_id=number % QUEUES,
                    timeout_s=5,
                )
            except UnknownOutcome:
                self.unknown.add(number)
                self._stop.wait(0.05)
            except PenstockError:
                self.refused += 1
                self._stop.wait(0.05)
            else:
                self.acknowledged.append(number)
            number += 1


def main() -> int:
    """Run the test; return the exit code."""
    problem = engine_problem()
    if problem:
        print(f"compose-test SKIPPED: {problem}")
        return 0
    compose = Compose()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run(compose)
    except Failed as failure:
        print(f"compose-test FAILED: {failure}\n")
        print(compose("logs", "--no-color", "--tail", "40", check=False))
        return 1
    finally:
        compose("down", "--volumes", "--timeout", "20", check=False)
    print("compose-test passed")
    return 0


def run(compose: Compose) -> None:
    """Build, start, load, kill each in turn, compare, stop."""
    with step("build the image"):
        compose("build", quiet=False)
    with step("start the services and wait until they are healthy"):
        compose("up", "--detach", "--wait")
    with Client(
        writer=compose.addresses["writer"],
        reader=compose.addresses["reader"],
        indexer=compose.addresses["indexer"],
    ) as client:
        client.create_topic(TOPIC, queues=QUEUES)
        with step("wake a waiting pull across containers"):
            check_waking(client)
        with step("store a dead letter, which reader and writer do together"):
            check_dead_letter(client)
        with Load(client) as load:
            for service in SERVICES:
                crash(compose, client, load, service)
            time.sleep(LOAD_SECONDS)
        with step("stop and start all of them"):
            compose("stop")
            check_clean_stop(compose)
            compose("up", "--detach", "--wait")
        compare(client, load)
    with step("stop for good"):
        compose("stop")
        check_clean_stop(compose)


def crash(compose: Compose, client: Client, load: Load, service: str) -> None:
    """Kill one service under load; the others serve on, and it comes back by itself."""
    time.sleep(LOAD_SECONDS)
    before = len(load.acknowledged)
    if not before:
        raise Failed("the load gets nothing acknowledged")
    restarts = compose.restarts(service)
    with step(f"kill -9 the {service} after {before:,} messages"):
        compose("exec", "-T", service, "sh", "-c", CRASH, check=False)
        others = {
            "writer": lambda: client.produce(TOPIC, b"still here", tag="probe", queue_id=0),
            "reader": lambda: client.pull(TOPIC, 0, 0, max_messages=1),
            "indexer": client.indexer_status,
        }
        for name, ask in others.items():
            if name != service:
                check_answers(name, ask)
        wait_until(lambda: compose.restarts(service) > restarts, f"the {service} was not restarted")
        wait_until(
            lambda: compose.states()[service]["Health"] == "healthy",
            f"the {service} did not become healthy again",
        )
    if service == "writer":
        wait_until(lambda: len(load.acknowledged) > before + 1, "the load does not go on")


def compare(client: Client, load: Load) -> None:
    """Read everything back: each acknowledged message once, by queue and by key."""
    with step(f"read back {len(load.acknowledged):,} acknowledged messages"):
        counts: dict[bytes, int] = {}
        with client.consume(TOPIC, follow=False) as records:
            for record in records:
                counts[record.body] = counts.get(record.body, 0) + 1
        lost = [n for n in load.acknowledged if body_of(n) not in counts]
        twice = [n for n in load.acknowledged if counts.get(body_of(n), 0) > 1]
        if lost or twice:
            raise Failed(f"{len(lost)} messages lost {lost[:5]}, {len(twice)} twice {twice[:5]}")
        uncertain = sum(body_of(n) in counts for n in load.unknown)
        print(
            f"    all there, each once; of {len(load.unknown) + load.refused} others, sent while a"
            f" service was down, {uncertain} are there too"
        )
    with step(f"find {SAMPLED_KEYS} of them by key"):
        end = client.writer_status().dispatched_offset
        client.wait_indexed(end, timeout_s=30)
        stride = max(1, len(load.acknowledged) // SAMPLED_KEYS)
        for number in [*load.acknowledged[::stride], load.acknowledged[-1]]:
            found = [record.body for record in client.query_by_key(TOPIC, key_of(number))]
            if found != [body_of(number)]:
                raise Failed(f"key {key_of(number)} finds {len(found)} messages")


def check_waking(client: Client) -> None:
    """Fail unless a waiting pull returns as soon as the writer has stored something."""
    if not client.reader_status().writer_alive:
        raise Failed("the reader does not see the writer")
    for number in range(WAKES):
        end = client.offset(TOPIC, 0).queue_offset
        timer = threading.Timer(0.2, client.produce, (TOPIC, b"wake up"), {"queue_id": 0})
        timer.start()
        began = time.monotonic()
        answer = client.pull(TOPIC, 0, end, wait_ms=5_000)
        waited = time.monotonic() - began
        timer.join()
        if len(answer.records) != 1 or not 0.1 < waited < WAKE_SECONDS_MAX:
            raise Failed(f"wait {number}: {len(answer.records)} records after {waited:.2f} s")


def check_dead_letter(client: Client) -> None:
    """Fail unless a message that a group gives up is in its dead letters."""
    client.create_topic(PARCELS, queues=1)
    client.produce(PARCELS, b"returned")
    received = client.receive(PARCELS, group=GROUP, wait_ms=5_000)
    refused = client.dead_letter(received)
    bodies = [record.body for record in client.consume(f"%DLQ%{GROUP}", follow=False)]
    if refused or bodies != [b"returned"]:
        raise Failed(f"dead letters {bodies}, refused {refused}")


def check_answers(name: str, ask: Callable[[], object]) -> None:
    """Fail unless a service answers while another one is down."""
    try:
        ask()
    except PenstockError as error:
        raise Failed(f"the {name} does not answer meanwhile: {error}") from error


def check_clean_stop(compose: Compose) -> None:
    """Fail unless every service drained and ended with 0."""
    codes = {name: state.get("ExitCode") for name, state in compose.states().items()}
    if codes != dict.fromkeys(SERVICES, 0):
        raise Failed(f"exit codes after stop: {codes}")


def wait_until(holds: Callable[[], bool], problem: str) -> None:
    """Wait until a condition holds; fail after the time a restart may take."""
    deadline = time.monotonic() + HEALTHY_SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(problem)
        time.sleep(0.2)


@contextlib.contextmanager
def step(title: str) -> Iterator[None]:
    """Print what happens and how long it took."""
    print(f"==> {title}", flush=True)
    began = time.monotonic()
    yield
    print(f"    {time.monotonic() - began:.1f} s", flush=True)


def engine_problem() -> str:
    """Return why no container engine can be used, "" if one can."""
    for command in (["docker", "compose", "version"], ["docker", "info"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        except FileNotFoundError:
            return "there is no docker command"
        except subprocess.TimeoutExpired:
            return "the container engine does not answer"
        if done.returncode:
            return f"no container engine with Compose v2 answers (`{' '.join(command)}` failed)"
    return ""


def body_of(number: int) -> bytes:
    """Return the body of a numbered message."""
    return f"message {number} ".encode() * 20


def key_of(number: int) -> str:
    """Return the key of a numbered message."""
    return f"number-{number}"


def free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
