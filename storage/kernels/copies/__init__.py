"""Copies of stored records that a store appends itself: another topic, properties of the store's own."""
