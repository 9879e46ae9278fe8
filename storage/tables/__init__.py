"""The JSON tables of a store, read and written as a broker does."""
