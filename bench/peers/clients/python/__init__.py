"""Loads made by the clients for Python; each module is a program with key=value arguments."""
