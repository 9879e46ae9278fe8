"""Cells that cannot be green: limits of a client that no server can lift, and faults of the reference."""

from __future__ import annotations

# (client, scenario): why. The same with every server.
CLIENT_FAULTS = {
    (
        "node",
        "body_4mib",
    ): "its gRPC library takes answers of 4 MiB at most, and a body needs a frame around it",
    (
        "rust",
        "body_4mib",
    ): "its gRPC library takes answers of 4 MiB at most, and a body needs a frame around it",
}

# scenario: why RocketMQ 5.3.3 fails it, for every client or for those named.
REFERENCE_FAULTS: dict[str, tuple[str, frozenset[str]]] = {
    "lease_end": ("a lease's end wakes nobody who waits", frozenset()),
    "change_nack": ("a lease's end wakes nobody who waits", frozenset()),
    "change_extend": ("an acknowledgement by a handle of a change is ignored", frozenset()),
    "push_retry": ("a lease's end wakes nobody who waits", frozenset()),
    "slow_handler": ("leases of push consumers are not renewed", frozenset()),
    "slow_handler_75s": ("leases of push consumers are not renewed", frozenset()),
    "restarts": ("no client is asked for its settings again", frozenset({"python", "go"})),
    "two_members": (
        "a poll of a member that has left takes a message with it until its lease ends",
        frozenset(),
    ),
    "recall": ("recall is off by default", frozenset()),
    "readme_example": ("a receive before the client's settings is refused", frozenset({"python"})),
    "sql_filter": (
        "a poll is answered after the client's deadline, which is its end",
        frozenset({"rust"}),
    ),
    "send_together": ("one receipt for all messages of a request", frozenset()),
}


def why(server: str, language: str, scenario: str) -> str:
    """Return why a cell is known to fail, or "" if it has to be green."""
    fault = CLIENT_FAULTS.get((language, scenario), "")
    if server != "penstock" and scenario in REFERENCE_FAULTS:
        reason, languages = REFERENCE_FAULTS[scenario]
        if not languages or language in languages:
            fault = fault or reason
    return fault
