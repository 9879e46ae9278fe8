"""Leases: messages handed out to consumers of a group for a time, and acknowledged one by one.

Read ``ranges`` first: what is handed out of one queue, and what came of it, as bitmaps. ``leased_queue``
reads and notes for them, ``group_topic`` has a group's queues in a topic, ``queue_sets`` says which,
``leases`` has every call, under one lock. ``journal`` is what a start goes on with. Records are read through
``storage.reader`` alone, and nothing here appends to the log.
"""
