"""The writer service: the one process that appends."""
