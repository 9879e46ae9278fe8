"""Commands of those who send."""
