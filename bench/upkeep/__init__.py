"""Benches of what a store does by itself."""
