"""Leases: messages handed out to consumers of a group for a time, and acknowledged one by one."""
