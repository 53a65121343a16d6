"""Bytes, spans and readers for YAML, JSON and launch lines; byte-exact edits. Knows no key name."""
