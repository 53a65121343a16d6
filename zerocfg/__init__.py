"""zerocfg: a compiler and linter for distributed-training configs."""

__version__ = "0.1.0"
