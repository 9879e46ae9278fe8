"""Figures, each beside its limit in the same run."""
