"""What the server under each service costs."""
