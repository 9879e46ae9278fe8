"""What kernels are made of: compilation, bytes, checksums, vectors, memory."""
