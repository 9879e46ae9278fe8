"""The gateway service: RocketMQ 5's own clients, over the writer and the reader."""
