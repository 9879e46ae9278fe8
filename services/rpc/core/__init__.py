"""gRPC's core on the event loop: what calls are served on.

``grpc.aio`` serves on the same core, for several times the processor time a call (docs/architecture.md).
What is used of the core's names here is what grpcio's own threaded server uses; no other package uses them.
"""

from typing import Any

from grpc._cython import cygrpc as _cygrpc  # type: ignore[attr-defined]  # compiled, without stubs

cygrpc: Any = _cygrpc
