"""The indexer service: builds index files from the log that the writer has confirmed."""
