"""gRPC's core on the event loop: what calls are served on, for a third of what ``grpc.aio`` takes for a call.

Its names are private to grpcio; no other package uses them. Where one is missing or takes other
arguments this package is not imported (ImportError, AttributeError, TypeError), and services run on
``services.rpc.aio_server``.
"""

from typing import Any, Final

from grpc._cython import cygrpc as _cygrpc  # type: ignore[attr-defined]  # compiled, without stubs

cygrpc: Any = _cygrpc

_USED: Final = {
    "Server": "add_http2_port cancel_all_calls destroy register_completion_queue request_call shutdown start",
    "CompletionQueue": "poll shutdown",
    "CompletionType": "queue_shutdown queue_timeout",
    "RequestCallEvent": "call call_details invocation_metadata success",
    "CallDetails": "deadline method",
    "BatchOperationEvent": "batch_operations completion_type success tag",
    "Call": "cancel peer start_server_batch",
    "ReceiveMessageOperation": "message",
    "ReceiveCloseOnServerOperation": "cancelled",
    "StatusCode": "cancelled invalid_argument ok unknown",
}


def _check() -> None:
    """Touch every name that is used, and make each operation as calls do."""
    for holder, names in _USED.items():
        for name in names.split():
            getattr(getattr(cygrpc, holder), name)
    cygrpc.auth_context  # noqa: B018
    cygrpc.ReceiveMessageOperation(0)
    cygrpc.ReceiveCloseOnServerOperation(0)
    cygrpc.SendInitialMetadataOperation((), 0)
    cygrpc.SendMessageOperation(b"", 0)
    cygrpc.SendStatusFromServerOperation((), cygrpc.StatusCode.ok, b"", 0)


_check()
