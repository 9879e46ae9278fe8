"""Changing a store that nobody has open: one that is being made, or one whose services have stopped."""
