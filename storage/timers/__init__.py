"""Delayed messages: stored in a broker's form until they are due, and then delivered to their topic."""
