"""Is an error that zerocfg reports on real files true? The real library is run on these very files.

Three ways, the first that applies: the loader of the file refuses it and names what the finding names; one of the
rule's proofs, made for its own example, shows the same on these files; a check made for the rule (CHECKS) sees the
consequence on these files.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.parity.verdicts import real_accelerate
from tests.proofs.claims import contradictions
from tests.proofs.harness import HarnessError, Observation, observe
from tests.real_files.oracle import accelerate_error, deepspeed_error
from zerocfg.rules.engine import Diagnostic
from zerocfg.rules.proof import Proof, crashes
from zerocfg.rules.registry import find


@dataclass
class Played:
    """The files of one launch, played on the real libraries as far as a proof asks, each distance once.

    ``files`` under their own names; those that the harness looks for by name (``ds.json``, ``accelerate.yaml``,
    ``recipe.yaml``) stand there once more.
    """

    files: dict[str, str]
    consumer: str | None
    seen: dict[tuple[str, int, bool], Observation | str] = field(default_factory=dict)

    def observation(self, proof: Proof) -> Observation | str:
        """What was seen, or why it could not be seen here."""
        memory = any(name.startswith("memory.") for name in proof.shows)
        key = (proof.phase, proof.ranks, memory)
        if key not in self.seen:
            try:
                self.seen[key] = observe(self.files, self.consumer, proof.phase, proof.ranks, memory=memory)
            except HarnessError as error:
                self.seen[key] = f"cannot be played here: {error}"
        return self.seen[key]


def proofs(code: str) -> list[Proof]:
    """What a rule claims, by itself and in each of its bad examples, where it is executed."""
    rule = find(code)
    assert rule is not None
    claimed = [rule.proof, *(example.proof for example in rule.bad if example.proof is not None)]
    return [proof for proof in claimed if proof.status == "executed"]


def refuted(diagnostic: Diagnostic, played: Played) -> list[str]:
    """Empty when the real library shows what the finding says, else why nothing does."""
    error = loader_error(diagnostic)
    if error is not None and names(diagnostic, error):
        return []
    check = CHECKS.get(diagnostic.code)
    if check is not None:
        return check(diagnostic, played)
    reasons: list[str] = []
    for proof in proofs(diagnostic.code):
        seen = played.observation(proof)
        wrong = [seen] if isinstance(seen, str) else contradictions(proof, seen, good=False)
        if not wrong:
            return []
        reasons += wrong
    return reasons or ["the rule has no executed proof"]


def loader_error(diagnostic: Diagnostic) -> str | None:
    """What DeepSpeedConfig or the launcher says to the file of a finding, when they refuse it."""
    file = diagnostic.spot.file
    loader = {"deepspeed": deepspeed_error, "accelerate": accelerate_error}.get(file.kind)
    if loader is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, Path(file.name).name)
        path.write_bytes(file.source.text.encode("utf-8", "surrogateescape"))
        return loader(path)


def names(diagnostic: Diagnostic, error: str) -> bool:
    """Whether the finding speaks of the key or in the words of the library's error."""
    words = set(re.findall(r"\w{3,}", error.lower()))
    key = diagnostic.spot.path.split(".")[-1].lower()
    said = set(re.findall(r"\w{3,}", diagnostic.message.lower()))
    return key in words or len(words & said) >= 2


# --- checks made for one rule -----------------------------------------------------------------------------------------


def dead_in_accelerate(diagnostic: Diagnostic, played: Played) -> list[str]:
    """The same job is launched when the key has another name, which surely nobody knows."""
    text = diagnostic.spot.file.source.text
    section, _, key = diagnostic.spot.path.partition(".")
    tree: Any = yaml.safe_load(text)
    if not isinstance(tree, dict) or not isinstance(tree.get(section), dict) or key not in tree[section]:
        return ["the key is not where the finding says"]
    tree[section]["unread"] = tree[section].pop(key)
    before, after = real_accelerate(text), real_accelerate(yaml.safe_dump(tree, sort_keys=False))
    fields = "ACCELERATE_CONFIG_DS_FIELDS"  # the names of all keys, used to look for nine of them
    changed = [name for name in before.values if name != fields and before.values[name] != after.values.get(name)]
    if before.error or after.error:
        return [f"is not launched: {before.error or after.error}"]
    return [f"{name} changes with the key" for name in changed]


def parameters_stay(diagnostic: Diagnostic, played: Played) -> list[str]:
    """Below stage 3 no parameter is partitioned, although the config asks to offload them."""
    seen = played.observation(Proof("executed", "init"))
    if isinstance(seen, str):
        return [seen]
    if seen.error is not None:
        return [str(seen.error)]
    stage = seen.value("engine.stage")
    return [] if stage in (0, 1, 2) else [f"the stage is {stage}"]


def read_twice(diagnostic: Diagnostic, played: Played) -> list[str]:
    """A reader of duplicate keys keeps the last value only."""
    file = diagnostic.spot.file
    lines = [line for line in file.source.text.splitlines() if line.split(":")[0].strip() == diagnostic.spot.path]
    values = {line.split(":", 1)[1].strip() for line in lines}
    return [] if len(lines) > 1 else [f"is written {len(lines)} times: {values}"]


def word_is_false(diagnostic: Diagnostic, played: Played) -> list[str]:
    """yaml.safe_load reads the word as a truth value, where the Trainer's argument takes a word."""
    value: Any = yaml.safe_load(diagnostic.spot.file.source.text)
    for part in diagnostic.spot.path.split("."):
        value = value[part]
    return [] if isinstance(value, bool) else [f"is read as {value!r}"]


def schedule_of_json(diagnostic: Diagnostic, played: Played) -> list[str]:
    """The engine steps the schedule, or runs the optimizer, that the DeepSpeed config names."""
    seen = played.observation(Proof("executed", "init"))
    if isinstance(seen, str):
        return [seen]
    if seen.error is not None:
        return [str(seen.error)]
    named = [str(seen.value(f"config.{part}.type")) for part in ("optimizer", "scheduler")]
    runs = [str(seen.value(f"engine.{part}")) for part in ("optimizer", "scheduler")]
    found = [f"the engine runs {runs}, the file names {named}"]
    return [] if named[1] == runs[1] or named[0].lower() in runs[0].lower() else found


def mismatch(diagnostic: Diagnostic, played: Played) -> list[str]:
    """The Trainer names the key among those that differ."""
    seen = played.observation(crashes("init", ""))
    if isinstance(seen, str):
        return [seen]
    text = "" if seen.error is None else seen.error.text
    lines = [line for line in text.splitlines() if line.startswith("- ds")]
    key = diagnostic.spot.path
    return (
        [] if any(f" {key}=" in line or key.endswith(line.split("=")[0][5:]) for line in lines) else [str(seen.error)]
    )


CHECKS: dict[str, Callable[[Diagnostic, Played], list[str]]] = {
    "ZC003": read_twice,
    "ZC006": word_is_false,
    "ZC103": dead_in_accelerate,
    "ZC202": mismatch,
    "ZC211": schedule_of_json,
    "ZC502": parameters_stay,
}
