"""The packages and the Python that files and commands ask for."""
