"""What iterators over queues, and over the answer to a query by key, hold and decide."""
