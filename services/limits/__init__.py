"""Limits of what one caller may take: of a user's calls, or of a connection's where accounts are off.

``meter`` counts what a caller takes, ``limiter`` refuses its calls and slows its streams down
(``metered_call``).
"""
