"""What clients of RocketMQ 5 speak: its contract, and its messages as records of the store."""
