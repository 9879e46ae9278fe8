"""Writer, reader and indexer as processes of their own over one store, killed and started again at will."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from free_ports import free_address
from real_processes import Running, until

SERVICES = ("writer", "reader", "indexer")
SUPPORT = Path(__file__).parent
ADDRESS_TRIES = 5
START_S = 240.0  # machines are busy
SMALL_FILES = {
    "commit-log-file-size": "1MiB", "consume-queue-file-size": "20000",
    "index-slot-count": "1000", "index-entry-count": "4000",
}  # fmt: skip
Flags = Mapping[str, str | None]
Defects = Mapping[str, str]  # by service


def _is_decided(running: Running, service: str) -> bool:
    return bool(running.serving(service)) or running.process.poll() is not None


class ServiceTrio:
    """Each service keeps its address; ``flags`` are the writer's, ``defects`` some of defective_service."""

    def __init__(
        self,
        store: Path,
        flags: Flags | None = None,
        *,
        defects: Defects | None = None,
    ) -> None:
        self.store = store
        self.addresses = {service: free_address() for service in SERVICES}
        self.environments: dict[str, Mapping[str, str]] = {}  # of the next starts
        self._defects = defects or {}
        self._flags: list[str] = []
        for name, value in (SMALL_FILES | dict(flags or {})).items():
            self._flags += [f"--{name}"] + ([] if value is None else [value])
        self.running: dict[str, Running] = {}
        self.gone: list[Running] = []  # killed, or ended by themselves

    def launch(self, names: Iterable[str] = SERVICES) -> None:
        """Start services without waiting until they serve."""
        for service in names:
            module, environment = f"services.{service}", dict(self.environments.get(service, {}))
            if service in self._defects:
                module = "defective_service"
                environment |= {"DEFECTIVE_SERVICE": service, "DEFECT": self._defects[service]}
            path = os.pathsep.join([str(SUPPORT), str(SUPPORT.parent)])
            running = Running(
                module, "--store", str(self.store), "--listen", self.addresses[service],
                *(self._flags if service == "writer" else ()),
                environment=environment | {"PYTHONPATH": path},
            )  # fmt: skip
            self.running[service] = running.__enter__()

    def start(self, names: Iterable[str] = SERVICES) -> None:
        """Start services and return when all of them serve."""
        names = tuple(names)
        self.launch(names)
        self.wait_serving(names)

    def wait_serving(self, names: Iterable[str]) -> None:
        """Return when services serve; one that finds its address taken for the moment is started again."""
        for service in names:
            for _ in range(ADDRESS_TRIES):
                running = self.running[service]
                until(partial(_is_decided, running, service), START_S)
                if not any("cannot listen" in line for line in running.output):
                    break
                time.sleep(1)
                running.__exit__()
                self.launch([service])
            running.wait_serving(service)

    def kill(self, names: Iterable[str]) -> None:
        """Kill services at once, and return when they are gone."""
        gone = [self.running.pop(service) for service in names]
        for running in gone:
            with suppress(ProcessLookupError):
                running.process.send_signal(signal.SIGKILL)
        for running in gone:
            running.process.wait(20)
            running.__exit__()
        self.gone += gone

    def reap(self) -> list[str]:
        """Return the services that have ended by themselves since the last time; they can be started."""
        gone = [name for name, each in self.running.items() if each.process.poll() is not None]
        for name in gone:
            self.gone.append(self.running.pop(name))
            self.gone[-1].__exit__()
        return gone

    def output(self) -> str:
        """Return what the services have written, also those that are gone."""
        return "\n".join(running.text() for running in (*self.gone, *self.running.values()))

    def stop(self) -> None:
        """End the services in an orderly way."""
        for running in self.running.values():
            running.process.terminate()
        for running in self.running.values():
            running.__exit__()
        self.gone += self.running.values()
        self.running = {}

    def __enter__(self) -> ServiceTrio:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self.stop()
        if error is not None:
            error.add_note(f"the services wrote:\n{self.output()[-4000:]}")
