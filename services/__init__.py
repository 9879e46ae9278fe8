"""The services over one store directory, the gateway in front of them, and what runs them all."""

import os

# The C core of gRPC reads this when it is loaded, and would print what Python raises anyway.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # noqa: TID251  sets, reads nothing
