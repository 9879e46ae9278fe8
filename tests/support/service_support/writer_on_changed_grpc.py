"""The writer's real process on a grpcio whose core has lost a private name: run as a script, by its test."""

from __future__ import annotations

import sys

from grpc._cython import cygrpc  # type: ignore[attr-defined]

from services.writer.__main__ import main

if __name__ == "__main__":
    del cygrpc.SendStatusFromServerOperation
    sys.exit(main())
