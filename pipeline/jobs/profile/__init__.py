"""The job ``profile``."""
