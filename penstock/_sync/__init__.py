# Written by make client from penstock/_async: change it there.
"""The client for threads."""
