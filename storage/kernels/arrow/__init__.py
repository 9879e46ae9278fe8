"""Kernels that turn rows of a scan into the buffers of Arrow arrays."""
