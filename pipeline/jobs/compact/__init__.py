"""The job ``compact``."""
