"""Kernels over what the log says of producers."""
