"""Types of a smoke-run: what was reduced, and the certificate that is left of it."""
