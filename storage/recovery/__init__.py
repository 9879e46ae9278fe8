"""What a start makes of what the last session left."""
