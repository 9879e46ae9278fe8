"""RocketMQ's wire: its clients served on a port of the reader or alone, with writer and reader behind.

``messaging`` composes ``servicer``, one method a call, from ``routes``, ``sends`` to
the writer, ``receives`` of the reader, ``transactions``, ``telemetry`` and
``sessions``. ``messages`` translates messages, plain sends by kernels. ``v2`` is generated from
``protos/services/gateway/v2``. Nothing here imports the engine, a writer or a reader.
"""
