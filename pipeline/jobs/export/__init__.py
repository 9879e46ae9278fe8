"""The job ``export``."""
