"""The Spark data source: options checked, reads planned, batches decoded in tasks."""
