"""Benches of producers: what numbering their requests costs."""
