"""Journals of our own state, one for each process that has some: blocks, generations, syncs.

``journal_file`` writes one file of blocks (``storage.format.journal``). ``journal`` is that of leases: it is
appended to, and replaced when it has grown long. ``states`` has the writer's: small states by name, each put
whole. Neither knows what its blocks mean.
"""
