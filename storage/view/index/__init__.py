"""Index files as they are read: their shape, chains of entries, queries by key."""
