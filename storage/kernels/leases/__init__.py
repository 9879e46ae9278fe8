"""Loops over leases: receipt handles, the records that are handed out, runs of messages as bitmaps."""
