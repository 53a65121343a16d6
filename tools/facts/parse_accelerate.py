"""What `accelerate launch` does with config files, inside one release: reads a text a line, writes a verdict.

A verdict is {"error", "here", "values"}: how the launcher refuses the file (null: it does not), whether that is about
this machine, and the variables that it exports, with the number of processes as "world".
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from tests.parity.verdicts import real_accelerate

for line in sys.stdin:
    real = real_accelerate(json.loads(line))
    told = {name: held for name, held in asdict(real).items() if name in ("error", "here", "values")}
    print("VERDICT " + json.dumps(told), flush=True)
