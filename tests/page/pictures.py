"""The pictures of docs/report.md, from real commands: ``python -m tests.page.pictures`` takes them anew.

``python -m tests.page.pictures smoke.json`` shows a smoke-run of examples/goals that was made before.
Needs the headless Chromium of ``tests/node`` and, for the smoke-run that the report shows, the training libraries.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from tests.conftest import ROOT

PICTURES = ROOT / "docs" / "pictures"
LARGEST = 200_000
"""Bytes of a picture."""
STYLES = {"31;1": "red bold", "33;1": "yellow bold", "36;1": "cyan bold", "34": "blue", "1": "bold", "32": "green"}
TERMINAL = """<!doctype html><html lang="en"><meta charset="utf-8"><style>
body { margin: 0; padding: 20px; background: #eceff3; font: 14px/1.5 "DejaVu Sans Mono", monospace; }
div { border-radius: 10px; background: #14181d; color: #d8dee6; padding: 14px 20px 18px; }
pre { margin: 0; font: inherit; white-space: pre-wrap; } .prompt { color: #8b96a3; }
.bold { font-weight: 700; } .red { color: #ff7b72; } .yellow { color: #e3b341; } .cyan { color: #76d7e6; }
.blue { color: #79a8f0; } .green { color: #7ee0a0; }
</style><div><pre><span class="prompt">$</span> <b>%s</b>
%s</pre></div></html>"""


def zerocfg(*words: str, folder: Path, codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run([sys.executable, "-m", "zerocfg", *words], cwd=folder, capture_output=True, text=True)
    if done.returncode not in codes:
        raise SystemExit(f"zerocfg {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def terminal(line: str, output: str) -> str:
    """A page that shows what a terminal shows: the escapes of colours become spans."""
    shown = html.escape(output.rstrip())
    for code, style in STYLES.items():
        shown = re.sub(rf"\x1b\[{code}m(.*?)\x1b\[0m", rf'<span class="{style}">\1</span>', shown, flags=re.S)
    assert "\x1b" not in shown
    return TERMINAL % (html.escape(line), shown)


def lint(folder: Path) -> Path:
    """A real finding or two of examples/pitfalls, in colour."""
    shutil.copytree(ROOT / "examples" / "pitfalls", folder / "pitfalls")
    shutil.copytree(ROOT / "examples" / "quickstart", folder / "quickstart")
    words = ("lint", "--select", "ZC201,ZC102,ZC708")
    output = zerocfg(*words, "--color", "always", folder=folder / "pitfalls", codes=(1,))
    page = folder / "terminal.html"
    page.write_text(terminal(" ".join(("zerocfg", *words)), output), encoding="utf-8")
    return page


def report(folder: Path, certificate: Path | None) -> Path:
    """examples/goals, smoke-run on this machine; then somebody wants twice the batch."""
    run = folder / "goals"
    shutil.copytree(ROOT / "examples" / "goals", run)
    if certificate is not None:
        shutil.copy(certificate, run / "built" / "fast" / "smoke.json")
    else:
        zerocfg("smoke", "built/fast", "--device", "cpu", folder=run)
    spec = run / "zerocfg.yaml"
    spec.write_text(spec.read_text().replace("global_batch_size: 128", "global_batch_size: 256"))
    zerocfg("report", ".", "-o", "report.html", "--no-trace", folder=run)
    return run / "report.html"


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        page = str(report(folder, Path(sys.argv[1]) if len(sys.argv) > 1 else None))
        shots: list[dict[str, Any]] = [
            {"out": "report.png", "page": page, "width": 1280, "scheme": "light", "scale": 1, "height": 1570},
            {"out": "report-phone.png", "page": page, "width": 390, "scheme": "dark", "scale": 1.5, "height": 1480},
            {"out": "report-smoke.png", "page": page, "width": 1280, "scheme": "dark", "scale": 1, "height": 1560},
            {"out": "lint.png", "page": str(lint(folder)), "width": 980, "scheme": "light", "scale": 1.5},
        ]
        shots[2]["from"] = "#time"
        taken = [shot | {"out": str(folder / shot["out"])} for shot in shots]
        subprocess.run(["node", str(Path(__file__).with_name("shots.mjs")), json.dumps(taken)], check=True)
        for shot in shots:
            image = Image.open(folder / shot["out"]).convert("RGB")
            image.save(PICTURES / shot["out"], optimize=True)
            size = (PICTURES / shot["out"]).stat().st_size
            print(f"{shot['out']}: {image.size}, {size // 1024} kB")
            if size > LARGEST:
                raise SystemExit(f"{shot['out']} is too large for the repository")


if __name__ == "__main__":
    main()
