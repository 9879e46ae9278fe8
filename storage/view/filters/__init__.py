"""Filters of records by their properties, as consumers write them."""
