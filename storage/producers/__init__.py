"""What the store knows of producers' requests, so that none is stored twice."""
