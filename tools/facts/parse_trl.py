"""TRL's own verdict on recipes, inside one release: reads [config class, mapping] a line, writes its error or null.

accepted = TrlParser makes ScriptArguments, that config and ModelConfig of it
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import transformers
import trl
import yaml

transformers.logging.set_verbosity_error()


def verdict(name: str, recipe: dict[str, Any]) -> str | None:
    config = getattr(trl, name)
    parser = trl.TrlParser((trl.ScriptArguments, config, trl.ModelConfig))
    path = Path("recipe.yaml")
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    nowhere = io.StringIO()
    try:
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            parser.parse_args_and_config(["--config", str(path)])
    except SystemExit:
        return f"SystemExit: {nowhere.getvalue().strip().splitlines()[-1:]}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


os.chdir(tempfile.mkdtemp())
print("WITH transformers " + transformers.__version__, flush=True)
for line in sys.stdin:
    print("VERDICT " + json.dumps(verdict(*json.loads(line))), flush=True)
