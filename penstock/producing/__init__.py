"""The streaming producer: what it holds and decides, and the threads that send its batches."""
