"""Writing a store with Spark, exactly once."""
