"""State and decisions of iterators over queues and over answers to a query by key; no I/O."""
