"""The gateway as a service of its own: RocketMQ 5's own clients, over the writer and the reader."""
