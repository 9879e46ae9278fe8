"""How long a message takes and what it costs on a quiet system, and beside a hostile caller."""
