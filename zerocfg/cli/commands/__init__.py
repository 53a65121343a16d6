"""A module for each command, imported on use."""
