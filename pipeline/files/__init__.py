"""A store directory as files."""
