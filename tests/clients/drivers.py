"""A driver process of one language, and the clients in it, as the scenarios use them."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.resident import cpu_seconds


class ClientFailed(Exception):
    """The client refused a command, or raised; ``code`` is the server's status where the client shows it."""

    def __init__(self, text: str, code: int | None) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Received:
    """A message as the client showed it, and when the driver said so (seconds, monotonic)."""

    fields: Mapping[str, Any]
    at: float

    @property
    def id(self) -> str:
        return str(self.fields["id"])

    @property
    def body(self) -> str:
        return str(self.fields["body"])

    @property
    def attempt(self) -> int:
        return int(self.fields["attempt"])

    @property
    def message_group(self) -> str | None:
        return self.fields["message_group"]


@dataclass
class Calls:
    """What a push consumer's listener was called with, and what it returned, in order."""

    calls: list[Received] = field(default_factory=list)
    returns: list[tuple[str, bool, float]] = field(default_factory=list)


class Driver:
    """A running driver; a context manager. Commands may be given by several threads."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=dict(environment),
            cwd=log.parent,
        )
        self._ids = itertools.count(1)
        self._changed = threading.Condition()
        self._answers: dict[int, tuple[dict[str, Any], float]] = {}
        self._listeners: dict[str, Calls] = {}
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(10)
        self._reader.join(10)
        self._log.close()

    def do(self, command: str, *, timeout: float = 60, **values: Any) -> dict[str, Any]:
        """Return the driver's answer to one command; raise ClientFailed for a refusal."""
        number = next(self._ids)
        line = json.dumps({"id": number, "do": command, **values}) + "\n"
        assert self._process.stdin is not None
        try:
            with self._changed:
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError("the driver has ended") from None
        self.wait(
            lambda: number in self._answers, timeout, f"no answer to {command} in {timeout:g} s"
        )
        answer, at = self._answers.pop(number)
        if "error" in answer:
            raise ClientFailed(answer["error"], answer.get("code"))
        return {**answer, "at": at}

    def cpu_seconds(self) -> float:
        """Return the processor time that the driver has used."""
        return cpu_seconds([self._process.pid])

    def listen(self, name: str) -> Calls:
        """Return where the calls of a push consumer of that name are collected."""
        return self._listeners.setdefault(name, Calls())

    def wait(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        """Wait until something that the driver says makes the condition true."""
        with self._changed:
            came = self._changed.wait_for(lambda: condition() or self._ended, timeout)
            assert condition(), what if not came else f"{what}: the driver has ended"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith(b"{"):
                continue  # some clients print
            said, at = json.loads(line), time.monotonic()
            with self._changed:
                if said.get("event") == "call":
                    self.listen(said["name"]).calls.append(Received(said["message"], at))
                elif said.get("event") == "return":
                    self.listen(said["name"]).returns.append((said["id"], said["ok"], at))
                else:
                    self._answers[said["id"]] = (said, at)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class StartedClient:
    """One client in a driver, by its name."""

    def __init__(self, driver: Driver, name: str, kind: str, **options: Any) -> None:
        self.driver = driver
        self.name = name
        driver.do("start", name=name, kind=kind, **options)

    def stop(self) -> None:
        self.driver.do("stop", name=self.name)


class Producer(StartedClient):
    """Sends to one topic."""

    def __init__(self, driver: Driver, name: str, topic: str, *, checks: bool = False) -> None:
        self.topic = topic
        super().__init__(driver, name, "producer", topic=topic, checks=checks)

    def send(self, *messages: Mapping[str, Any], together: bool = False) -> list[str]:
        """Send one by one, or in one request; return message ids."""
        wanted = [{"topic": self.topic, **message} for message in messages]
        return list(
            self.driver.do("send", name=self.name, messages=wanted, together=together)["ids"]
        )

    def send_transaction(self, end: str, **message: Any) -> str:
        """Send one message in a transaction, then ``commit``, ``rollback`` or leave it; return its id."""
        wanted = {"topic": self.topic, **message}
        answer = self.driver.do("send_transaction", name=self.name, message=wanted, end=end)
        return str(answer["ids"][0])

    def send_later(self, *bodies: str, deliver_ms: int) -> list[tuple[str, str]]:
        """Send messages to be delivered at a time; return their ids and recall handles."""
        wanted = [{"topic": self.topic, "body": body, "deliver_ms": deliver_ms} for body in bodies]
        answer = self.driver.do("send", name=self.name, messages=wanted, together=False)
        return list(zip(answer["ids"], answer["recall_handles"], strict=True))

    def recall(self, recall_handle: str) -> str:
        """Take a message back; return its id."""
        answer = self.driver.do(
            "recall", name=self.name, topic=self.topic, recall_handle=recall_handle
        )
        return str(answer["message_id"])

    def send_bodies(self, *bodies: str, **values: Any) -> list[str]:
        return self.send(*({"body": body, **values} for body in bodies))


class SimpleConsumer(StartedClient):
    """Receives and acknowledges by calls."""

    def __init__(self, driver: Driver, name: str, **options: Any) -> None:
        super().__init__(driver, name, "simple", **options)

    def receive(self, most: int = 32, invisible_s: float = 30) -> list[Received]:
        """Return what one call gives; nothing after the await duration."""
        answer = self.driver.do(
            "receive", name=self.name, max=most, invisible_ms=int(invisible_s * 1000)
        )
        return [Received(fields, answer["at"]) for fields in answer["messages"]]

    def receive_until(
        self, count: int, within_s: float = 20, invisible_s: float = 30
    ) -> list[Received]:
        """Return at least so many messages, by as many calls as it takes."""
        found: list[Received] = []
        end = time.monotonic() + within_s
        while len(found) < count:
            assert time.monotonic() < end, (
                f"{len(found)} of {count} messages came in {within_s:g} s"
            )
            found += self.receive(invisible_s=invisible_s)
        return found

    def receive_nothing(self, for_s: float) -> None:
        """Fail if anything comes in that time."""
        end = time.monotonic() + for_s
        while time.monotonic() < end:
            came = self.receive()
            assert not came, f"{[(m.body, m.attempt) for m in came]} came again"

    def ack(self, *messages: Received) -> None:
        for message in messages:
            self.driver.do("ack", name=self.name, ref=message.fields["ref"])

    def change(self, message: Received, invisible_s: float) -> float:
        """Change the lease's end; return when the answer came."""
        answer = self.driver.do(
            "change",
            name=self.name,
            ref=message.fields["ref"],
            invisible_ms=int(invisible_s * 1000),
        )
        return float(answer["at"])


class PushConsumer(StartedClient):
    """Calls a listener that fails ``fail_times`` and takes ``sleep_ms``, properties of the message."""

    def __init__(self, driver: Driver, name: str, **options: Any) -> None:
        self._heard = driver.listen(name)
        super().__init__(driver, name, "push", **options)

    @property
    def calls(self) -> list[Received]:
        return list(self._heard.calls)

    @property
    def returns(self) -> list[tuple[str, bool, float]]:
        return list(self._heard.returns)

    def wait_calls(self, count: int, within_s: float = 30) -> list[Received]:
        """Wait until the listener was called so often; return the calls."""
        heard = self._heard.calls
        try:
            self.driver.wait(lambda: len(heard) >= count, within_s, "")
        except AssertionError as error:
            raise AssertionError(
                f"{len(heard)} of {count} calls in {within_s:g} s {error}"
            ) from None
        return self.calls

    def wait_returns(self, count: int, within_s: float = 30) -> None:
        """Wait until the listener has returned so often."""
        heard = self._heard.returns
        self.driver.wait(lambda: len(heard) >= count, within_s, f"fewer than {count} returns")
