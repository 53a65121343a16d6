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

from tests.models.recording import RecordingDict
from tests.parity.verdicts import real_accelerate
from tests.proofs.claims import contradictions, measured
from tests.proofs.harness import HarnessError, Observation, observe
from tests.real_files.oracle import accelerate_error, deepspeed_error, fill
from zerocfg.linter.engine import Diagnostic
from zerocfg.rulebook.pages import page_of
from zerocfg.rulebook.proof import Proof, crashes
from zerocfg.rules.registry import find


@dataclass
class Played:
    """The files of one launch, played on the real libraries as far as a proof asks, each distance once.

    ``files`` under their own names; those that the harness looks for by name (``ds.json``, ``accelerate.yaml``,
    ``recipe.yaml``) stand there once more.
    """

    files: dict[str, str]
    consumer: str | None
    seen: dict[tuple[str, int, str], Observation | str] = field(default_factory=dict)

    def observation(self, proof: Proof) -> Observation | str:
        """What was seen, or why it could not be seen here."""
        measure = measured(proof)
        key = (proof.phase, proof.ranks, " ".join(measure))
        if key not in self.seen:
            try:
                self.seen[key] = observe(self.files, self.consumer, proof.phase, proof.ranks, measure=measure)
            except HarnessError as error:
                self.seen[key] = f"cannot be played here: {error}"
        return self.seen[key]


def proofs(code: str) -> list[Proof]:
    """What a rule claims, by itself and in each of its bad examples, where it is executed."""
    rule = find(code)
    assert rule is not None
    claimed = [page_of(rule).proof, *(example.proof for example in page_of(rule).bad if example.proof is not None)]
    return [proof for proof in claimed if proof.status == "executed"]


@dataclass(frozen=True)
class Verdict:
    """``evidence``: what the real library did, in a line. ``reasons``: why nothing shows the finding; empty when
    something does."""

    evidence: str = ""
    reasons: tuple[str, ...] = ()


def confirmed(diagnostic: Diagnostic, played: Played) -> Verdict:
    """Whether the real library shows what the finding says."""
    error = loader_error(diagnostic)
    if error is not None and names(diagnostic, error):
        return Verdict(relevant(diagnostic, error))
    check = CHECKS.get(diagnostic.code)
    if check is not None:
        return check(diagnostic, played)
    reasons: list[str] = []
    for proof in proofs(diagnostic.code):
        seen = played.observation(proof)
        wrong = [seen] if isinstance(seen, str) else contradictions(proof, seen, good=False)
        if not wrong and not isinstance(seen, str):
            values = ", ".join(f"{name}: {seen.value(name)}" for name in proof.shows if name != "log")
            return Verdict(str(seen.error) if proof.raises else f"after {proof.phase}: {values}")
        reasons += wrong
    return Verdict(reasons=tuple(reasons or ["the rule has no executed proof"]))


def relevant(diagnostic: Diagnostic, error: str) -> str:
    """The lines of a library's error that speak of the finding's key: the first and what pydantic says below it."""
    lines = [line.strip() for line in error.splitlines()]
    key = diagnostic.span.path.split(".")[-1]
    below = [index for index, line in enumerate(lines) if line == key]
    return f"{lines[0]} {lines[below[0]]} {lines[below[0] + 1]}" if below and len(lines) > below[0] + 1 else lines[0]


def loader_error(diagnostic: Diagnostic) -> str | None:
    """What DeepSpeedConfig or the launcher says to the file of a finding, when they refuse it."""
    file = diagnostic.span.file
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
    key = diagnostic.span.path.split(".")[-1].lower()
    said = set(re.findall(r"\w{3,}", diagnostic.message.lower()))
    return key in words or len(words & said) >= 2


# --- checks made for one rule -----------------------------------------------------------------------------------------


def dead_in_accelerate(diagnostic: Diagnostic, played: Played) -> Verdict:
    """The same job is launched when the key has another name, which surely nobody knows."""
    text = diagnostic.span.file.source.text
    section, _, key = diagnostic.span.path.partition(".")
    tree: Any = yaml.safe_load(text)
    if not isinstance(tree, dict) or not isinstance(tree.get(section), dict) or key not in tree[section]:
        return Verdict(reasons=("the key is not where the finding says",))
    tree[section]["unread"] = tree[section].pop(key)
    before, after = real_accelerate(text), real_accelerate(yaml.safe_dump(tree, sort_keys=False))
    fields = "ACCELERATE_CONFIG_DS_FIELDS"  # the names of all keys, used to look for nine of them
    changed = [name for name in before.values if name != fields and before.values[name] != after.values.get(name)]
    if before.error or after.error:
        return Verdict(reasons=(f"is not launched: {before.error or after.error}",))
    evidence = "accelerate launch exports the same variables when the key has a name that nobody knows"
    return Verdict(evidence, tuple(f"{name} changes with the key" for name in changed))


def never_looked_at(diagnostic: Diagnostic, played: Played) -> Verdict:
    """DeepSpeedConfig reads the file, its "auto" filled, without asking for the key."""
    from deepspeed.runtime.config import DeepSpeedConfig

    data: Any = diagnostic.span.file.data()
    fill(data)
    data.pop("train_batch_size", None)
    data["train_micro_batch_size_per_gpu"] = 1
    data["gradient_accumulation_steps"] = 1
    recorded = RecordingDict(data)
    try:
        DeepSpeedConfig(recorded)
    except Exception as error:
        return Verdict(reasons=(f"is not read: {error}",))
    *parents, key = diagnostic.span.path.split(".")
    where = tuple(parents)
    asked = key in recorded.seen.get(where, ()) or where in recorded.walked
    return Verdict("DeepSpeedConfig never asks for the key", ("DeepSpeedConfig looks at the key",) if asked else ())


def built(played: Played) -> Observation | Verdict:
    seen = played.observation(Proof("executed", "init"))
    if isinstance(seen, str):
        return Verdict(reasons=(seen,))
    return seen if seen.error is None else Verdict(reasons=(str(seen.error),))


def parameters_stay(diagnostic: Diagnostic, played: Played) -> Verdict:
    """Below stage 3 no parameter is partitioned, although the config asks to offload them."""
    seen = built(played)
    if isinstance(seen, Verdict):
        return seen
    stage, device = seen.value("engine.stage"), seen.value("engine.zero_config.offload_param.device")
    evidence = f"the engine runs stage {stage} with offload_param.device {device}; parameters are not partitioned"
    return Verdict(evidence, () if stage in (0, 1, 2) else (f"the stage is {stage}",))


def schedule_of_json(diagnostic: Diagnostic, played: Played) -> Verdict:
    """The engine steps the schedule, or runs the optimizer, that the DeepSpeed config names."""
    seen = built(played)
    if isinstance(seen, Verdict):
        return seen
    named = [str(seen.value(f"config.{part}.type")) for part in ("optimizer", "scheduler")]
    runs = [str(seen.value(f"engine.{part}")) for part in ("optimizer", "scheduler")]
    same = named[1] == runs[1] or named[0].lower() in runs[0].lower()
    evidence = f"the engine runs the optimizer {runs[0]} and the schedule {runs[1]}"
    return Verdict(evidence, () if same else (f"{evidence}, the file names {named}",))


def read_twice(diagnostic: Diagnostic, played: Played) -> Verdict:
    """A reader that takes duplicate keys keeps the last value only."""
    text = diagnostic.span.file.source.text
    lines = [line for line in text.splitlines() if line.split(":")[0].strip() == diagnostic.span.path]
    values = [line.split(":", 1)[1].strip() for line in lines]
    evidence = f"yaml.safe_load keeps {values[-1:]} of {values}"
    return Verdict(evidence, () if len(lines) > 1 else (f"is written {len(lines)} times",))


def word_is_false(diagnostic: Diagnostic, played: Played) -> Verdict:
    """yaml.safe_load reads the word as a truth value, where the Trainer's argument takes a word."""
    value: Any = yaml.safe_load(diagnostic.span.file.source.text)
    for part in diagnostic.span.path.split("."):
        value = value[part]
    return Verdict(f"yaml.safe_load gives {value!r}", () if isinstance(value, bool) else (f"is read as {value!r}",))


def mismatch(diagnostic: Diagnostic, played: Played) -> Verdict:
    """The Trainer names the key among those that differ."""
    seen = played.observation(crashes("init", ""))
    if isinstance(seen, str):
        return Verdict(reasons=(seen,))
    text = "" if seen.error is None else seen.error.text
    lines = [line for line in text.splitlines() if line.startswith("- ds")]
    key = diagnostic.span.path
    named = [line for line in lines if f" {key}=" in line or key.endswith(line.split("=")[0][5:])]
    return Verdict(f"ValueError at train(): {named[0]}") if named else Verdict(reasons=(str(seen.error),))


CHECKS: dict[str, Callable[[Diagnostic, Played], Verdict]] = {
    "ZC003": read_twice,
    "ZC006": word_is_false,
    "ZC102": never_looked_at,
    "ZC103": dead_in_accelerate,
    "ZC202": mismatch,
    "ZC211": schedule_of_json,
    "ZC502": parameters_stay,
}
