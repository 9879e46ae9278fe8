"""What a start does with what the last session left."""
