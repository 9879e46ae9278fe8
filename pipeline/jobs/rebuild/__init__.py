"""The job ``rebuild``."""
