"""Requests of the clients and readings of their answers: a module for each noun, no I/O."""
