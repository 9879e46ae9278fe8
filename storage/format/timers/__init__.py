"""Delayed messages: their files, and the handles by which they are recalled."""
