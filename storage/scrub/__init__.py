"""The scrub: a slow walk through a running store that finds damage before a reader does."""
