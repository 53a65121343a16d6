"""Typed models of every file format: the one definition of keys, types, units, ranges, versions and autos.

The models describe; they never touch disks or devices. `zerocfg.models.schema` compiles them into `schemas/*.json`,
and that compiled form is what linting reads, so that linting never imports pydantic.
"""
