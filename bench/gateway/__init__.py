"""Benches of the gateway: what RocketMQ's own clients cost it."""
