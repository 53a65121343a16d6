"""Launches a config set on the real libraries and judges what really runs."""
