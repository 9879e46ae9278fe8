"""``make demo``: flights stored, read back, queried and compared."""
