"""Transactions: what they cost beside messages without one."""
