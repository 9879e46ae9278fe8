"""Spark sessions, and the Java under them."""
