"""Penstock and the stores that it is compared with, each with its own client, on the same cells."""
