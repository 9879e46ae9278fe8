"""Transactions: half messages, their end by commit or rollback, and the checks of those that nobody ends.

Read ``transactions`` first: halves are stored and ended, and found again by ``loading`` after a restart.
``halves`` is the table of pending ones, ``ends`` what is known of others, ``checks`` the worker that asks
producers. In the log they are ``half_records`` and ``removals`` (a broker's op records), read and appended by
``log_access``; ``progress`` says where a start begins to read.
"""
