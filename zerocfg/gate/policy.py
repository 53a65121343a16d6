"""``[tool.zerocfg.gate]``: what a project requires."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocfg.budgets import FILE_BYTES
from zerocfg.catalog.suggest import closest
from zerocfg.gate.model import GateError
from zerocfg.run.discover import display_name
from zerocfg.source import disk

if TYPE_CHECKING:
    from collections.abc import Mapping

LIBRARIES = ("deepspeed", "accelerate", "transformers", "trl", "torch")
_WORDS = {
    "fail-on": ("error", "warning", "note"),
    "require": ("all", "changed", "none"),
    "hardware": ("accelerator", "architecture", "vendor", "any"),
    "code": ("same", "any"),
}
KNOWN = (*_WORDS, "outputs", "base", "max-age-days", "versions", "allow-reduced", "policies", "signers")


@dataclass(frozen=True, slots=True)
class Policy:
    """``outputs``: the folders of builds by spec, both from ``folder``, the folder of the settings.

    ``require``: which runs need a certificate; "changed": those whose files differ from where the branch left
    ``base``. ``max_age_days`` None: certificates do not expire. ``hardware``: how alike the tested and the
    planned accelerator must be. ``versions``: the libraries whose release must be the one that is planned for.
    ``allow_reduced``: kinds of reductions (`zerocfg.smoke.model.reduction.Kind`) that a smoke-run may have; None: all.
    ``policies``: JSON Schema files. ``code``: whether script and imports must be those that were there ("same").
    ``signers``: a list of signers, one of whom must have signed each certificate; None: nobody has to.
    """

    folder: Path
    outputs: tuple[tuple[Path, tuple[Path, ...]], ...] = ()
    fail_on: str | None = None
    require: str = "all"
    base: str = "origin/main"
    max_age_days: float | None = None
    hardware: str = "architecture"
    versions: tuple[str, ...] = LIBRARIES
    allow_reduced: tuple[str, ...] | None = None
    policies: tuple[Path, ...] = ()
    code: str = "same"
    signers: Path | None = None


def read_policy(table: Any, source: Path | None) -> Policy:
    """The policy of a settings table. Raises GateError with file, line and key of an invalid setting."""
    if source is None or table is None:
        return Policy(Path())
    return _Reader(table, source).policy()


class _Reader:
    def __init__(self, table: Any, source: Path) -> None:
        self.table: Mapping[str, Any] = table if isinstance(table, dict) else {}
        self.source = source
        self.name = "gate" if source.name == "zerocfg.toml" else "tool.zerocfg.gate"
        if not isinstance(table, dict):
            raise self._error("gate", f"[{self.name}] must be a table")

    def policy(self) -> Policy:
        for key in self.table:
            if key not in KNOWN:
                near = closest(key, KNOWN)
                hint = f"did you mean {near}?" if near else f"there are {', '.join(sorted(KNOWN))}"
                raise self._error(key, f"[{self.name}] has no setting '{key}'; {hint}")
        folder = self.source.parent
        base = self.table.get("base", "origin/main")
        if not isinstance(base, str) or not base or base.startswith("-"):
            raise self._error("base", 'base must name a branch or commit of git, as "origin/main"')
        return Policy(
            folder,
            tuple(self._outputs(folder)),
            self._word("fail-on", None),
            self._word("require", "all") or "all",
            base,
            self._days(),
            self._word("hardware", "architecture") or "architecture",
            self._libraries(),
            self._texts("allow-reduced") if "allow-reduced" in self.table else None,
            tuple(self._file("policies", name) for name in self._texts("policies")),
            self._word("code", "same") or "same",
            self._signers(),
        )

    def _outputs(self, folder: Path) -> list[tuple[Path, tuple[Path, ...]]]:
        outputs = self.table.get("outputs", {})
        example = '{ "zerocfg.yaml" = "built" }'
        if not isinstance(outputs, dict):
            raise self._error("outputs", f"outputs must be a table of specs to folders, as {example}")
        found = []
        for spec, named in outputs.items():
            names = [named] if isinstance(named, str) else named
            if (
                not isinstance(names, list)
                or not names
                or not all(isinstance(name, str) and "\0" not in name for name in names)
            ):
                raise self._error(spec, f"outputs: '{spec}' must name a folder or a list of folders, as {example}")
            path = folder / spec
            path = path / "zerocfg.yaml" if path.is_dir() else path
            if not path.is_file():
                raise self._error(spec, f"outputs: there is no spec '{spec}'")
            found.append((path, tuple(folder / name for name in names)))
        return found

    def _signers(self) -> Path | None:
        name = self.table.get("signers")
        if name is None:
            return None
        if not isinstance(name, str) or "\0" in name:
            raise self._error("signers", f"signers must name a file, as git's allowed signers, not {name!r}")
        return self._file("signers", name)

    def _file(self, key: str, name: str) -> Path:
        path = self.source.parent / name
        if not path.is_file():
            raise self._error(key, f"{key}: there is no file '{name}'")
        return path

    def _days(self) -> float | None:
        days = self.table.get("max-age-days")
        if days is None:
            return None
        if isinstance(days, bool) or not isinstance(days, (int, float)) or not 0 < days < 100_000:
            raise self._error("max-age-days", f"max-age-days must be a number of days above 0, not {days!r}")
        return days

    def _libraries(self) -> tuple[str, ...]:
        if "versions" not in self.table:
            return LIBRARIES
        names = self._texts("versions")
        for name in names:
            if name not in LIBRARIES:
                raise self._error("versions", f"versions: '{name}' is none of {', '.join(LIBRARIES)}")
        return names

    def _word(self, key: str, default: str | None) -> str | None:
        word: str | None = self.table.get(key, default)
        choices = _WORDS[key]
        if word is not None and word not in choices:
            raise self._error(key, f"{key} must be {', '.join(choices[:-1])} or {choices[-1]}, not {word!r}")
        return word

    def _texts(self, key: str) -> tuple[str, ...]:
        value = self.table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._error(key, f"{key} must be a list of texts")
        return tuple(value)

    def _error(self, key: str, message: str) -> GateError:
        line = self._line(key)
        return GateError(f"{display_name(self.source)}{f':{line}' if line else ''}: {message}")

    def _line(self, key: str) -> int:
        """The line of a key of the gate's table, 0 where it is not found: TOML is read without positions."""
        try:
            lines = disk.whole(self.source, FILE_BYTES).decode("utf-8").splitlines()
        except (OSError, ValueError):
            return 0
        header = re.compile(rf"\s*\[\s*{re.escape(self.name)}\b")
        start = next((number for number, line in enumerate(lines) if header.match(line)), 0)
        wanted = re.compile(rf"""(?:.*[\s{{,.])?["']?{re.escape(key)}["']?\s*=""")
        return next((number + 1 for number, line in enumerate(lines) if number >= start and wanted.match(line)), 0)
