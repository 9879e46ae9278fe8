"""The parts of a writer: opened, wired, started, stopped."""
