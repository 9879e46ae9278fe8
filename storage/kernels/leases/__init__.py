"""Loops over leases: their rows, their receipt handles, the records that are handed out."""
