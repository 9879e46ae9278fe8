"""Commands about consumer groups: settings and progress, offsets, dead letters."""
