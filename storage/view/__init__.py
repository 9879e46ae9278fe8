"""The read side of a store directory, for the reader service, the offline tools and Spark alike."""
