"""The compiled form of the models, and the checks of keys, types and ranges that read it.

Contents: Schemas and their checks, did-you-mean, the same setting in the words of another format (`counterparts`), the
schema as an older release has it (`history`, `older`), training arguments by release (`fields`), what each release
changed (`changes`), the releases that a declaration admits (`versions`), configs of well-known models
(`known_models`).

May use: `source`. No pydantic.

Begin at: `check.py`, `values.py`, `older.py`.
"""
