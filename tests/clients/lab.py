"""What a scenario is given: a server, a client in one language, and names of its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivers import Driver, Producer, PushConsumer, SimpleConsumer
from languages import Language
from servers import Server


class Lab(contextlib.ExitStack):
    """One scenario's clients, topics and groups. Its clients end with it."""

    def __init__(
        self, name: str, server: Server, language: Language, folder: Path, tls: bool
    ) -> None:
        super().__init__()
        self.server = server
        self.language = language
        self._prefix = f"{name}-{language.name}".replace("_", "-")
        self.folder = folder / self._prefix
        self.folder.mkdir(parents=True, exist_ok=True)
        self._tls = tls
        self._numbers = itertools.count(1)
        self._driver: Driver | None = None

    def driver(self) -> Driver:
        """Start one more process of the client."""
        number = next(self._numbers)
        command = [*self.language.command(), self.server.address, self._transport()]
        return self.enter_context(
            Driver(command, self.environment(), self.folder / f"driver-{number}.log")
        )

    def _transport(self) -> str:
        return "tls" if self._tls or self.server.authority else "plain"

    def environment(self) -> dict[str, str]:
        """Return the environment of a client: its log goes into this scenario's folder."""
        keys, authority = self.server.credentials, self.server.authority
        return {
            **os.environ, **(self.language.environment or {}), "HOME": str(self.folder),
            "JAVA_TOOL_OPTIONS": f"-Duser.home={self.folder}", "GRPC_VERBOSITY": "ERROR",
            "DRIVER_ACCESS_KEY": keys.access_key if keys else "",
            "DRIVER_SECRET_KEY": keys.secret_key if keys else "",
            **({"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority)} if authority else {}),
        }  # fmt: skip

    def topic(self, kind: str = "NORMAL", queues: int = 4) -> str:
        name = f"{self._prefix}-{next(self._numbers)}"
        self.server.topic(name, kind, queues)
        return name

    def group(
        self, *, orderly: bool = False, retries: int = 16, backoff_ms: tuple[int, ...] = ()
    ) -> str:
        name = f"G-{self._prefix}-{next(self._numbers)}"
        self.server.group(name, orderly, retries, list(backoff_ms))
        return name

    def producer(self, topic: str, *, checks: bool = False) -> Producer:
        return Producer(self._one(), f"p{next(self._numbers)}", topic, checks=checks)

    def simple(
        self, topic: str, group: str, *, await_s: float = 5, **options: Any
    ) -> SimpleConsumer:
        reference = self.server.name == "rocketmq"
        if reference and self.language.name == "rust":  # its deadline is the end of its poll
            await_s = max(await_s, 8)
        consumer = SimpleConsumer(
            self._one(),
            f"s{next(self._numbers)}",
            topic=topic,
            group=group,
            await_ms=int(await_s * 1000),
            **options,
        )
        if reference:  # it fails receives that come before the client's settings
            time.sleep(2)
        return consumer

    def push(
        self, topic: str, group: str, *, driver: Driver | None = None, **options: Any
    ) -> PushConsumer:
        return PushConsumer(
            driver or self._one(), f"c{next(self._numbers)}", topic=topic, group=group, **options
        )

    def _one(self) -> Driver:
        self._driver = self._driver or self.driver()
        return self._driver


@dataclass(frozen=True)
class Scenario:
    """One row of the matrix."""

    run: Callable[[Lab], str | None]  # returns what is worth printing beside the time
    needs: frozenset[str] = frozenset()
    own_server: Mapping[str, str] | None = None  # flags of a Penstock of its own
    tls: bool = False
    slow: bool = False
    penstock_only: bool = False
    plaintext_only: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def title(self) -> str:
        return (self.run.__doc__ or self.name).splitlines()[0].rstrip(".")
