"""Limits of sizes, connections, pings and time, as gRPC's channel arguments."""

from __future__ import annotations

from typing import Final

from services.config.settings import ProcessSettings
from storage.files import open_files

CONNECTION_CALLS_MAX: Final = (
    1024  # under way at once: calls that are begun and taken back take memory
)
METADATA_BYTES_MAX: Final = 16 << 10  # of one call, its header fields as HTTP/2 counts them


def server_options(settings: ProcessSettings, ports: int = 1) -> list[tuple[str, int]]:
    """Return the channel arguments of one of so many ports: limits of sizes, connections, pings and time."""
    keepalive_ms = int(settings.keepalive_seconds * 1e3)
    return [
        ("grpc.so_reuseport", 0),  # a second service on the same address is an error, not a lottery
        ("grpc.max_receive_message_length", int(settings.message_bytes_max)),
        ("grpc.max_send_message_length", -1),
        (
            "grpc.max_allowed_incoming_connections",
            open_files.at_most(settings.connections_max, share=2 * ports),
        ),
        (
            "grpc.max_concurrent_streams",  # more calls of one connection wait at its caller
            min(settings.concurrent_calls_max, CONNECTION_CALLS_MAX),
        ),
        # No limit of ours to the calls that wait for the event loop: from 1,000 on gRPC cancels some, and from
        # 3,000 on each new one. Higher limits take 15 KiB a call, and leave an honest one behind all of them.
        ("grpc.max_metadata_size", METADATA_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
        ("grpc.max_connection_idle_ms", int(settings.connection_idle_seconds * 1e3)),
        ("grpc.server_handshake_timeout_ms", int(settings.handshake_timeout_seconds * 1e3)),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", min(keepalive_ms, 10_000)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 4),
        ("grpc.http2.ping_on_rst_stream_percent", 1),
        ("grpc.http2.lookahead_bytes", 4 << 20),
        ("grpc.http2.max_frame_size", 1 << 20),
    ]
