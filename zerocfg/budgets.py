"""How much work zerocfg does for what others wrote: every limit, with its unit and its reason.

A limit is far above what real projects need and far below what would stop an editor or a CI runner. Hitting one is
always told: a file that is left out is a finding (ZC001) or listed as not checked; a file that is read in part, and
findings that are left out, are told at their place by ZC015; commands that need the whole stop with the limit in their
message. Figures that merely shorten what is shown are not here.
"""

from __future__ import annotations

# Files

FILE_BYTES = 10 << 20
"""Bytes of a file, and of standard input. The largest launch line, lock or config met has a hundredth."""
UNASKED_BYTES = 1 << 20
"""Bytes of a JSON or YAML file that a walk meets and nobody names: a larger one is data."""
HEAD_BYTES = 1 << 16
"""Bytes that are looked at to tell such data from a config."""
NEIGHBOURS = 20_000
"""Files looked at in search of the partners of a single file."""

CACHED_BYTES = 8 << 20
"""Bytes of one kept outcome of a lint: that of 10,000 files has two million."""
CACHE_BYTES = 64 << 20
"""Bytes of all kept outcomes; those used longest ago go first."""

REPORT_BYTES = 256 << 20
"""Bytes of an earlier report about many repositories, which the user names: that of 10,000 has a hundred million."""
SIGNATURE_BYTES = 1 << 16
"""Bytes of the signature of a certificate. One by a key of RSA with 16,384 bits has 6,000."""
POLICY_SECONDS = 10.0
"""Seconds in which one policy of the gate is held against one run. A schema of a thousand rules takes a hundredth; a
pattern may be one that is tried in more ways than there is time."""

# Documents

DEPTH = 100
"""Levels of mappings and lists. Readers recurse, and so do those of the libraries."""
NODES = 200_000
"""Values of a document with its aliases expanded: a few lines of nested aliases can stand for billions."""
DIGITS = 40
"""Digits of a number in a text. No setting has twenty."""
LARGEST_NUMBER = 10**15
"""What counts as a size, in elements, samples or tokens: more fits no machine, and its products fit no float."""

# Launch scripts

WORD_CHARACTERS = 20_000
"""Characters of one word, or of the text that `eval` and `bash -c` get. A longer one is unknown, or not followed."""
EXPANDED_CHARACTERS = 5_000_000
"""Characters that the variables of one file may expand to: an array that is doubled in every line grows without end."""
ELEMENT_CHARACTERS = 20
"""What an element of an array costs of these besides its text."""
EXPANSION_DEPTH = 12
"""Defaults and quotes inside of each other."""
EVAL_DEPTH = 6
"""`eval` and `bash -c` inside of each other."""
CALL_DEPTH = 20
"""Shell functions that call each other, in one chain. What a deeper one starts is read all the same, by itself."""
REPEATED_CHARACTERS = 200_000
"""Characters of the functions of one file that are read again, at the second call and later ones, for what they set."""
PATH_CHARACTERS = 4096
"""Characters of a path that a command prints; what Linux takes."""
LAUNCHES = 500
"""Launch lines of one file. Each is a run, for which every rule works."""
LAUNCH_VARIABLES = 100_000
"""Variables that the launch lines of one file inherit, all together: every run knows each with its place."""

# Findings

FINDINGS = 1000
"""Findings of one rule in one run. Nobody reads more, and each brings its place, help and edits."""

# Specs and models

MATRIX_RUNS = 256
"""Runs that one matrix stands for."""
SPEC_RUNS = 2048
"""Runs that a spec stands for."""
BASES = 50
"""Names in one `extends`, and bases in a chain of them."""
TENSORS = 10_000
"""Tensors of a model whose memory is predicted. Each is allocated, gathered and freed in play, for every plan, and many
share a bucket. The largest dense model has 1,100; experts are few, as the library keeps those of a layer in one."""
TRACE_SECONDS = 300.0
"""Seconds that one trace of a model's activations may take; only a build whose spec asks for traces makes any."""

# Scripts

SCRIPT_BYTES = 1 << 20
"""Bytes of a Python file that is read for its calls."""
SETUP_BYTES = 1 << 17
"""Bytes of a shell script that is read for the packages it installs."""
ENVIRONMENT_BYTES = 1 << 18
"""Bytes of a script that is read for the Python it sets up."""
WRITER_BYTES = 200_000
"""Bytes of a script that is searched for what creates a missing file."""
MODULES = 60
"""Modules of the repository that one script is followed into."""
BOUND_MODULES = 2000
"""Modules that a certificate binds."""
DRAFTED_FILES = 2000
"""Python files that `init` looks at."""
DRAFTED_RUNS = 40
"""Runs that `init` drafts."""

# Checkpoints

FOLDER_NAMES = 200_000
"""Names in a folder of a checkpoint."""
PICKLE_BYTES = 64 << 20
"""Bytes of the pickle in a file of torch: names and shapes, no weights."""
ARCHIVE_ENTRIES = 1_000_000
"""Entries of an archive of torch."""
HEADER_BYTES = 100_000_000
"""Bytes of the header of a safetensors file; what the library itself accepts."""
INDEX_BYTES = 64 << 20
"""Bytes of a JSON file of a checkpoint."""
TENSOR_ELEMENTS = 1 << 63
"""Elements of one tensor; torch counts them in 64 bits."""
