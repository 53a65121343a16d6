"""``python -m tests.parity.releases``: configs judged at older releases, held against those releases themselves.

Each release is installed in a folder of its own (tools/facts) and parses the corpus, where there is one, and generated
configs; zerocfg judges the same configs with that release pinned. Exit code 1 when they disagree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parity import generated
from tests.parity.test_generated import BY_INITIALIZE, DEEPSPEED, LIMITS, errors, seeds
from tests.parity.verdicts import ABOUT_THE_MACHINE, claims, deepspeed_run, lint
from tools.facts.environment import CACHE, ROOT, install
from tools.facts.environment import releases as known
from zerocfg.run.effective import settled

RELEASES = ("0.10.3", "0.12.6", "0.14.5", "0.15.4", "0.16.3", "0.16.9", "0.17.6", "0.18.9", "0.19.5")
Config = tuple[str, int]


def configs(examples: int) -> list[Config]:
    """Texts and world sizes: files that people wrote (and the examples of rules), then generated ones."""
    found: list[Config] = [(generated.json_text(tree), 2) for tree in seeds("ds.json")]

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(tree=DEEPSPEED, world=st.sampled_from([1, 2, 8]))
    def collect(tree: dict[str, object], world: int) -> None:
        found.append((generated.json_text(tree), world))

    collect()
    return list(dict.fromkeys(found))


def real(version: str, given: list[Config]) -> list[str | None]:
    """How a release refuses each config; None where it takes it."""
    release = next(one for one in known() if (one.library, one.version) == ("deepspeed", version))
    folder = CACHE / "installed" / release.name
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as new:
            install(release, Path(new, "whole"))
            folder.parent.mkdir(exist_ok=True)
            Path(new, "whole").rename(folder)
    done = subprocess.run(
        [sys.executable, "-m", "tools.facts.parse_deepspeed"],
        input="".join(json.dumps(one) + "\n" for one in given),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    said = [json.loads(line[8:]) for line in done.stdout.splitlines() if line.startswith("VERDICT ")]
    if len(said) != len(given):
        raise RuntimeError(f"deepspeed {version} judged {len(said)} of {len(given)}: {done.stderr[-800:]}")
    return said


def differs(version: str, config: Config, error: str | None) -> str | None:
    """In which way zerocfg, with a release pinned, says something else than the release."""
    run = settled(replace(deepspeed_run(*config), versions={"deepspeed": f"=={version}"}))
    diagnostics = lint(run)
    sure, maybe = claims(diagnostics, "read", "parse")
    sure = [one for one in sure if one.code not in BY_INITIALIZE]
    newer = any(one.code == "ZC865" and one.severity.value == "error" for one in diagnostics)
    if error is None:
        return f"accepted, but {sure[0].code}: {sure[0].message}" if sure else None
    if sure or maybe or newer or ABOUT_THE_MACHINE in error:
        return None
    return f"refused, and no error says so: {error[:200]!r}; {errors(diagnostics)[:3]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", default=RELEASES)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--show", type=int, default=5, help="disagreements to show for each release")
    options = parser.parse_args()
    given = configs(options.examples)
    failed = 0
    for version in options.releases:
        verdicts = real(version, given)
        wrong = [
            (problem, config)
            for config, error in zip(given, verdicts, strict=True)
            if (problem := differs(version, config, error)) is not None
            and not any(limit.search(problem) for limit in LIMITS.values())
        ]
        refused = sum(error is not None for error in verdicts)
        print(f"deepspeed {version}: {len(given)} configs, {refused} refused, {len(wrong)} disagreements", flush=True)
        for problem, config in wrong[: options.show]:
            print(f"  {problem}\n    {config[0][:600]}")
        failed += len(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
