"""``penstock user`` and ``penstock acl``: who may call, and who may do what."""
