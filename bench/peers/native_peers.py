"""NATS JetStream and Redis Streams: one process each, with a client in Go."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from bench.peers import software
from bench.peers.peer import Peer


class NatsPeer(Peer):
    """One nats-server with JetStream on files."""

    name = "nats"

    @classmethod
    def prepare(cls) -> str:
        """Build the server and the client."""
        software.nats_server()
        software.go_client()
        return software.NATS_SERVER.removeprefix("v")

    def start(self) -> None:
        """Start the server."""
        sync = "always" if self.is_sync else '"2m"'
        (self.directory / "nats.conf").write_text(
            f'listen: "{self.address}"\n'
            f'jetstream {{ store_dir: "{self.directory}/store", max_file_store: 200GB, '
            f"sync_interval: {sync} }}\n"
        )
        super().start()

    def start_again(self) -> None:
        """Start the server and leave it to itself."""
        self.run(software.nats_server(), "-c", self.directory / "nats.conf")

    @property
    def native_client(self) -> Sequence[object]:
        """The Go client."""
        return [software.go_client(), "peer=nats"]


class RedisPeer(Peer):
    """One redis-server with an append-only file and without snapshots; its streams lie in memory, too."""

    name = "redis"

    @classmethod
    def prepare(cls) -> str:
        """Find the server and build the client."""
        server = software.require("redis-server", "redis-server")
        software.go_client()
        told = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
        words = told.stdout.split()
        return next(word.removeprefix("v=") for word in words if word.startswith("v="))

    def start_again(self) -> None:
        """Start the server and leave it to itself."""
        self.run(
            software.require("redis-server", "redis-server"), "--port", self.port, "--bind", "127.0.0.1",
            "--save", "", "--appendonly", "yes", "--appendfsync", "always" if self.is_sync else "no",
            "--auto-aof-rewrite-percentage", "0", "--dir", self.directory,
        )  # fmt: skip

    def create_topics(self, count: int) -> float:  # noqa: ARG002  a stream is made by its first entry
        """Do nothing."""
        return 0.0

    @property
    def native_client(self) -> Sequence[object]:
        """A client in Go that speaks Redis's protocol."""
        return [software.go_client(), "peer=redis"]
