"""The parts behind a writer: opened, wired, started, stopped."""
