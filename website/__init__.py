"""What the documentation site needs beside docs/: run by mkdocs through `hooks` of mkdocs.yml."""
