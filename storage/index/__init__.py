"""The append side of the index: following the log into index files."""
