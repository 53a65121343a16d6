"""What a smoke-run proved, in plain statements, and the file that records it."""
