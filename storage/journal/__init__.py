"""Journals of our own state, one for each process that has some: blocks, generations, syncs.

``journal`` writes one file of blocks (``storage.format.journal``) after the other; leases append to theirs.
``states`` makes the writer's of it: small states by name, each put whole. ``journal`` does not know what its
blocks mean.
"""
