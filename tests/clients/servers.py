"""What the clients talk to: Penstock's services, or a real broker with its proxy."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import grpc
from free_ports import free_port
from languages import CACHE, HERE, java_classes
from real_processes import Running, until

from bench.peers.programs import OPENED, run
from penstock.addresses import channel_options
from penstock.credentials import Credentials, signed
from penstock.tls import TLS, open_channel
from penstock.v1 import (
    gateway_pb2,
    gateway_pb2_grpc,
    groups_pb2,
    groups_pb2_grpc,
    writer_pb2,
    writer_pb2_grpc,
)
from storage.accounts.account_table import AccountTable
from storage.accounts.rules import UserKind, checked_policy
from storage.files.filesystem import FileSystem

START_SECONDS = 180.0  # a busy machine starts a service in a minute
_STARTING = threading.Lock()  # one server at a time: each start is work for all cores


class Server(Protocol):
    """A server under test; a context manager that ends it."""

    name: str
    services: tuple[str, ...]  # what can be killed
    address: str
    authority: Path | None  # with TLS: the file of its certificate's authority
    credentials: Credentials | None  # of clients

    def __enter__(self) -> Server: ...
    def __exit__(self, *_: object) -> None: ...
    def topic(self, name: str, kind: str, queues: int) -> None: ...
    def group(self, name: str, orderly: bool, retries: int, backoff_ms: list[int]) -> None: ...

    def restart(self, service: str, *, killed: bool) -> None:
        """Stop a service in order, or kill it; return when it serves again."""

    def end(self, *, killed: bool) -> None:
        """Stop all of it in order, or kill it; return when nothing of it runs any more."""


MakeServer = Callable[[str, dict[str, str]], Server]  # by a name of its own and its flags


class PenstockServer:
    """``penstock serve``, whose reader is the gateway too, on a new store.

    With ``split`` routes send clients that honour it to the writer and the reader. With ``tls`` all ports serve it;
    with ``accounts`` clients have credentials.
    """

    name = "penstock"
    services = ("reader", "writer")

    def __init__(
        self,
        folder: Path,
        flags: Mapping[str, str],
        *,
        split: bool = False,
        tls: bool = False,
        accounts: bool = False,
    ) -> None:
        store = folder / "store"
        self.authority: Path | None = None
        self.credentials, self._root = _accounts(store) if accounts else (None, None)
        self.address = f"127.0.0.1:{free_port()}"
        ports = {name: f"127.0.0.1:{free_port()}" for name in ("writer", "reader", "indexer")}
        endpoints = {name: ports[name] for name in ("writer", "reader")}
        self._tls: TLS | None = None
        if tls:
            chain, key = certificate()
            self._tls, self.authority = TLS(ca=chain), chain
            files = {"tls-cert": chain, "tls-key": key, "tls-ca": chain}
            flags = {**flags, **{name: str(path) for name, path in files.items()}}
        self._running = Running(
            "services.supervisor", "--store", str(store), *(["--accounts"] if accounts else []),
            *(word for name, address in ports.items() for word in (f"--{name}-listen", address)),
            "--gateway-listen", self.address, "--metrics-listen", "none", "--commit-log-file-size", "64MiB",
            *(word for name, address in endpoints.items() if split for word in (f"--{name}-endpoint", address)),
            *(word for name, value in flags.items() for word in (f"--{name}", value)),
        )  # fmt: skip
        self._log = folder / "penstock.log"

    def __enter__(self) -> PenstockServer:
        self._start()
        addresses = {name: self._running.serving(name)[0][0] for name in ("writer", "reader")}
        self._channels = {
            name: open_channel(grpc, address, channel_options(address), self._tls)
            for name, address in addresses.items()
        }
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels.values():
            channel.close()
        self._running.__exit__()
        self._log.write_text(self._running.text())

    def topic(self, name: str, kind: str, queues: int) -> None:
        request = writer_pb2.CreateTopicRequest(
            name=name, queue_count=queues, attributes={"message.type": kind}
        )
        stub = writer_pb2_grpc.WriterStub(self._channels["writer"])
        signed(stub.CreateTopic, self._root)(request, timeout=10)

    def group(self, name: str, orderly: bool, retries: int, backoff_ms: list[int]) -> None:
        settings = groups_pb2.GroupSettings(name=name, orderly=orderly, retry_max_times=retries)
        if backoff_ms:
            settings.backoff.customized.next_ms.extend(backoff_ms)
        request = groups_pb2.CreateGroupRequest(settings=settings)
        stub = groups_pb2_grpc.GroupsStub(self._channels["reader"])
        signed(stub.CreateGroup, self._root)(request, timeout=10)

    def clients_of(self, service: str) -> set[str]:
        """Return the ids of the clients that a service knows."""
        stub = gateway_pb2_grpc.GatewayStub(self._channels[service])
        list_clients = signed(stub.ListClients, self._root)
        clients = list_clients(gateway_pb2.ListClientsRequest(), timeout=10).clients
        return {client.client_id for client in clients}

    def restart(self, service: str, *, killed: bool) -> None:
        if service == "supervisor":
            self.end(killed=killed)
            self._start()
            return
        served = self._running.serving(service)
        os.kill(served[-1][1], signal.SIGKILL if killed else signal.SIGTERM)
        self._wait(service, len(served) + 1)

    def end(self, *, killed: bool) -> None:
        if killed:
            self._running.process.kill()  # and the kernel kills the services with it
            pids = [self._running.serving(name)[-1][1] for name in (*self.services, "indexer")]
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._running.process.wait(30)
            until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        else:
            assert self._running.stop() == 0, self._running.text()

    def _start(self) -> None:
        services = ("writer", "reader", "gateway", "indexer")
        times = {service: len(self._running.serving(service)) for service in services}
        with _STARTING:
            self._running.__enter__()
            for service in services:
                self._wait(service, times[service] + 1)

    def _wait(self, service: str, times: int) -> None:
        until(lambda: len(self._running.serving(service)) >= times, START_SECONDS)


def _accounts(store: Path) -> tuple[Credentials, Credentials]:
    """Make a user of clients, who may do what they do, and a super user; return their keys."""
    table = AccountTable(FileSystem(), store / "config")
    keys = []
    for name, kind in (("clients", UserKind.NORMAL), ("root", UserKind.SUPER)):
        keys.append(Credentials(name, table.create_user(name, kind).secrets[0]))
    for resource in ("Topic:*", "Group:*"):
        table.put_policy(checked_policy(user="clients", resource=resource, actions=["Pub", "Sub"]))
    return keys[0], keys[1]


class ReferenceServer:
    """RocketMQ 5.3.3: name server, broker and proxy in one Java process."""

    name = "rocketmq"
    services = ("broker",)

    def __init__(self, folder: Path, **settings: object) -> None:
        self._folder = folder
        ports = [free_port() for _ in range(8)]
        while ports[-1] - ports[0] != 7:  # the broker also takes a port that it counts from its own
            ports = [*ports[1:], free_port()]
        self._port = ports[0]
        self.address = f"127.0.0.1:{self._port + 6}"
        self.authority = self.credentials = None
        settings |= {
            "brokerClusterName": "reference", "brokerName": "reference-a", "brokerId": 0, "brokerIP1": "127.0.0.1",
            "namesrvAddr": f"127.0.0.1:{self._port}", "listenPort": self._port + 4, "haListenPort": self._port + 5,
            "storePathRootDir": folder / "store", "storePathCommitLog": folder / "store" / "commitlog",
            "mappedFileSizeCommitLog": 64 << 20, "diskMaxUsedSpaceRatio": 95, "enablePropertyFilter": "true",
            "autoCreateTopicEnable": "false",
        }  # fmt: skip
        (folder / "broker.conf").write_text(
            "".join(f"{name}={value}\n" for name, value in settings.items())
        )
        (folder / "proxy.json").write_text(json.dumps({
            "rocketMQClusterName": "reference", "namesrvAddr": f"127.0.0.1:{self._port}", "proxyMode": "local",
            "grpcServerPort": self._port + 6, "remotingListenPort": self._port + 7,
            "brokerConfigPath": str(folder / "broker.conf"),
        }))  # fmt: skip
        self._admin = threading.Lock()

    def __enter__(self) -> ReferenceServer:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(10)

    def topic(self, name: str, kind: str, queues: int) -> None:
        self._ask(f"topic {name} {kind} {queues}")

    def group(self, name: str, orderly: bool, retries: int, backoff_ms: list[int]) -> None:
        backoff = ",".join(map(str, backoff_ms))
        self._ask(f"group {name} {str(orderly).lower()} {retries} {backoff}".rstrip())

    def restart(self, service: str, *, killed: bool) -> None:
        self.end(killed=killed)
        self._start()

    def end(self, *, killed: bool) -> None:
        self._process.send_signal(signal.SIGKILL if killed else signal.SIGTERM)
        self._process.wait(120)

    def _start(self) -> None:
        with _STARTING:
            self._start_process()

    def _start_process(self) -> None:
        home = CACHE / "reference"
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["java", "-Xms512m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g", *OPENED,
                 f"-Duser.home={self._folder}", f"-Drocketmq.home.dir={self._folder}",
                 f"-Drocketmq.log.root={self._folder / 'logs'}", "-Drocketmq.client.logLevel=ERROR",
                 f"-Drocketmq.client.logRoot={self._folder / 'logs'}",
                 "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99", "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
                 "-cp", f"{home / 'classes'}:{home / 'lib'}/*", "Reference", str(self._folder), str(self._port)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == "ready\n", (
            f"the reference did not start: {line!r}, see {self._folder}/server.log"
        )

    def _ask(self, line: str) -> None:
        with self._admin:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        assert answer == "ok\n", f"{line}: {answer}"

    @staticmethod
    def install() -> None:
        """Fetch and compile it unless that is done; workers of one run wait for the first of them."""
        CACHE.mkdir(exist_ok=True)
        with (CACHE / "reference.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            java_classes(HERE / "reference", CACHE / "reference")


def certificate() -> tuple[Path, Path]:
    """Return a self-signed certificate for 127.0.0.1 and its key, made once."""
    folder = CACHE / "tls"
    chain, key = folder / "certificate.pem", folder / "key.pem"
    if not chain.exists():
        folder.mkdir(parents=True, exist_ok=True)
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", chain)  # fmt: skip
    return chain, key
