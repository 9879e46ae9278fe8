"""Leases: the bytes of their journal, and of receipt handles."""
