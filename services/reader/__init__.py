"""The reader service: pulls, queries by key, groups' progress."""
