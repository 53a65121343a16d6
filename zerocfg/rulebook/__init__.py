"""What is said about the rules: their pages, examples and proofs, and how these are shown."""
