"""Where checkpoints are kept: a folder, any fsspec file system, or data nodes of our own."""
