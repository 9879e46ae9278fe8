"""The indexer service: builds the index files behind the writer."""
