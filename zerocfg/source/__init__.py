"""Bytes to trees with spans, and byte-exact edits of them.

Contents: Readers of YAML (as PyYAML reads it), JSON (as both of its readers read it), launch lines (`launch`), and the
packages that files ask for (`requirements`). `disk` is the one place that asks the file system on the way of a lint,
within the limits of `boundary`; `write` replaces files as a whole.

May use: the standard library, PyYAML and packaging. It knows no key name.

Begin at: `node.py`, then `yaml_reader.py`, `json_reader.py`; for launch lines `launch/files.py`, `launch/line.py`,
`launch/shell.py`; for requirements `requirements/pip.py`.
"""
