"""The streaming producer: what it holds and decides, once with threads and once with tasks around it."""
