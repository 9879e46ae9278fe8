"""The transport of Penstock's services, with no store behind it: what bounds Penstock in this table."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench.peers import software
from bench.peers.peer import Peer


class BarePeer(Peer):
    """One process for the writer's and the reader's methods. Topics and restarts mean nothing to it."""

    name = "bare"
    has_python_client = False
    is_store = False

    @classmethod
    def prepare(cls) -> str:
        """Build the Go client."""
        software.go_client()
        return "transport"

    def start_again(self) -> None:
        """Start the server and leave it to itself."""
        self.run(sys.executable, "-m", "bench.controls.bare_store", self.port)

    def create_topics(self, count: int) -> float:  # noqa: ARG002  there are none
        """Do nothing."""
        return 0.0

    @property
    def native_client(self) -> Sequence[object]:
        """Penstock's client in Go."""
        return [software.go_client(), "peer=penstock"]

    @property
    def arguments(self) -> dict[str, object]:
        """Where both are."""
        return {"writer": self.address, "reader": self.address}
