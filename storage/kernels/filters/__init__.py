"""Compiled loops of filters by properties."""
