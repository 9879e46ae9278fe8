"""Retention: old files of the log and of the queues are deleted, whole, by age or for want of space."""
