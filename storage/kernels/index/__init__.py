"""Loops over index files: keys into entries and slots, chains, and the shape of a file."""
