"""The append side of the commit log: batches, encoders, commit and flush."""
