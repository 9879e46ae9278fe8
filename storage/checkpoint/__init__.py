"""The checkpoint page: live positions that processes share, and durable slots that outlive them."""
