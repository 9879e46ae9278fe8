"""Consume queues as they are read: units, their ends, times, pulls."""
