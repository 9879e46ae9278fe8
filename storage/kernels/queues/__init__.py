"""Kernels over the consume queues of a store, thousands of them at once."""
