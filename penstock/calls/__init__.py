"""What the clients ask, and what they make of the answers: a module for each noun, no I/O."""
