"""Sends of clients on their way to the writer: choice of queues, gathering, batches."""
