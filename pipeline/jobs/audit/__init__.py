"""The job ``audit``."""
