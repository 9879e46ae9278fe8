"""What is checked of a store: functions over a range of the log, and over a queue or an index file.

``penstock doctor`` runs them in process, Spark's audit runs the same ones over partitions. Read ``store``
first. Nothing here writes, and nothing here knows the engine.
"""
