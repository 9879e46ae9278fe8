"""Records staged beside the log and committed as a whole, exactly once."""
