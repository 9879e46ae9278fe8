"""Commands about what a store does by itself."""
