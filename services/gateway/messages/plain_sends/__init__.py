"""Plain sends of RocketMQ's clients: from a request's bytes to a record, by kernels."""
