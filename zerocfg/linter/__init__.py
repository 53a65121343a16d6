"""Checking runs with the rules: selecting and running them, suppressing, fixing, baselines."""
