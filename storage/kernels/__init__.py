"""Batch loops over bytes, compiled at import and cached; see :mod:`storage.kernels.primitives.jit`.

``columns`` is the row table in which a scan reports records; ``scan`` and ``property_walk`` fill it.
``record_parts`` writes the parts of a record. ``encode``, ``message_slices`` and ``copies`` put them
together, ``batch`` and ``placing`` give records their places in a log. ``python -m storage.kernels`` fills
the cache.
"""
