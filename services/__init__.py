"""The services over one store directory, the gateway in front of them, and what runs them all."""

import os

# The C core of gRPC reads these when it is loaded. It would print what Python raises anyway. Without its own
# threads for sockets the thread that waits for a call reads the socket itself: a fifth more of them is served.
# A core that does not know these names works as it does without them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # noqa: TID251  sets, reads nothing
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener,-event_engine_client")  # noqa: TID251
