"""What delayed messages cost."""
