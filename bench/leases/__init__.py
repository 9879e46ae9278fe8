"""Benches of leases: messages received and acknowledged by groups."""
