"""RocketMQ's MessagingService over a writer and a reader: what the gateway serves."""
