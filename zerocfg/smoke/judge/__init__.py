"""The plan against what the live engines and the saved files showed, and which rule explains the difference."""
