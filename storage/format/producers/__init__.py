"""What the log says of producers."""
