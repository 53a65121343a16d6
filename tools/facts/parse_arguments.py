"""transformers' own verdict on recipes, inside one release: reads a mapping a line, writes its error or null.

accepted = HfArgumentParser makes TrainingArguments of it, and no key is left over
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from typing import Any

import transformers

transformers.logging.set_verbosity_error()


def verdict(recipe: dict[str, Any]) -> str | None:
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    nowhere = io.StringIO()
    try:
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            parser.parse_dict(recipe)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return None


os.chdir(tempfile.mkdtemp())
for line in sys.stdin:
    print("VERDICT " + json.dumps(verdict(json.loads(line))), flush=True)
