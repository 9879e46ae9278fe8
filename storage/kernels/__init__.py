"""Batch loops over bytes, compiled at import and cached; see :mod:`storage.kernels.primitives.jit`.

``columns`` is the row table in which a scan reports records; ``scan`` and ``property_walk`` fill it. ``encode``,
``message_slices``, ``copies``, ``batch`` and ``placing`` write records. ``python -m storage.kernels`` fills the
cache.
"""
