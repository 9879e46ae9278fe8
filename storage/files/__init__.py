"""Bytes on disk, ignorant of what they mean: files, maps, locks, and how they become durable."""
