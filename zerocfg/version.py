"""The release of zerocfg."""

__version__ = "0.1.0"
