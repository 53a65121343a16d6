"""Thin click commands, one file each; imported only when called."""
