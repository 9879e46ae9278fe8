"""Plain deliveries to RocketMQ's clients: from a record to an answer's bytes, by kernels."""
