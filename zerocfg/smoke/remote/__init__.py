"""Smoke-runs on other machines: the job that is submitted, the program on its nodes, and what is gathered of it."""
