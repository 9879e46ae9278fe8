"""Benches of reading a store in one process."""
