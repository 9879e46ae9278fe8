"""State and decisions of iterators over queues and of subscriptions; no I/O but calls under way."""
