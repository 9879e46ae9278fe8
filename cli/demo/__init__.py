"""``make demo``: flights stored, read back, queried and compared; orders handled by a consumer group."""
