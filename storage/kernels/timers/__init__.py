"""Loops over delayed messages: how they are stored until they are due, when that is, what is delivered."""
