"""The data source as a stream."""
