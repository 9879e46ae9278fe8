"""Transactions: half messages, their end by commit or rollback, and the checks of those that nobody ends.

Read ``transactions`` first: halves are stored and ended, and found again by ``recovery`` after a restart.
``halves`` has the table of pending ones and what is known of others, ``checks`` the worker that asks
producers. In the log they are ``half_records``, half messages and a broker's op records, read and appended by
``log_access``; ``progress`` says where a start begins to read.
"""
