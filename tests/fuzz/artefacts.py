"""Files that zerocfg reads back: settings, specs, locks, certificates. Damaged ones are refused in words."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random

from tests.conftest import ROOT
from tests.fuzz.campaign import Campaign, Input
from tests.fuzz.command import zerocfg
from tests.fuzz.texts import damaged, text
from zerocfg.smoke.certify.certificate_file import CertificateError
from zerocfg.smoke.certify.certificate_file import read as read_certificate

SETTINGS = (
    '[tool.zerocfg]\nselect = ["ZC1", "ZC4"]\nignore = ["ZC103"]\nconsumer = "transformers"\nexclude = ["a", "b/*"]\n'
    '[tool.zerocfg.versions]\ndeepspeed = ">=0.16"\n[tool.zerocfg.per-file-ignores]\n"*.json" = ["ZC2"]\n'
)


@cache
def example(name: str) -> dict[str, bytes]:
    folder = ROOT / "examples" / name
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {path: data for path, data in files.items() if len(data) < 200_000 and "__pycache__" not in path}


def _with(name: str, form: str, random: Random, example_name: str = "quickstart") -> Input:
    files = dict(example(example_name))
    files[name] = damaged(files[name].decode(), form, random).encode("utf-8", "replace")
    return files


def _settings(random: Random) -> Input:
    files: Input = {name: data for name, data in example("quickstart").items() if "/" not in name}
    whole = damaged(SETTINGS, "toml", random).encode("utf-8", "replace")
    return {**files, "pyproject.toml": whole if random.random() < 0.8 else text("toml", random)}


def _spec(random: Random) -> Input:
    return _with(
        "zerocfg.yaml",
        "yaml",
        random,
        random.choice(("quickstart", "matrix", "goals", "stages", "moe", "lora", "fsdp")),
    )


def _lock(random: Random) -> Input:
    names = [name for name in example("quickstart") if name.endswith("zerocfg.lock")]
    return _with(random.choice(names), "json", random)


def _certificate(random: Random) -> Input:
    data = (ROOT / "tests" / "page" / "quickstart-smoke.json").read_text("utf-8")
    return {"smoke.json": damaged(data, "json", random).encode("utf-8", "replace")}


def _lints(folder: Path, random: Random) -> None:
    zerocfg("lint", ".")


def _plans(folder: Path, random: Random) -> None:
    zerocfg(*random.choice((("plan", "."), ("lint", "."), ("build", ".", "--check"))))


def _checks(folder: Path, random: Random) -> None:
    built = next(path.parent for path in sorted(folder.rglob("zerocfg.lock")))
    zerocfg(
        *random.choice(
            (
                ("gate",),
                ("diff", str(built)),
                ("report", str(built), "-o", "page.html"),
                ("build", ".", "-o", str(built)),
            )
        )
    )


def _certifies(folder: Path, random: Random) -> None:
    with suppress(CertificateError):
        read_certificate(folder / "smoke.json")


ARTEFACTS = (
    Campaign("settings", 300, 20_000, _settings, _lints),
    Campaign("specs", 200, 10_000, _spec, _plans),
    Campaign("locks", 100, 5_000, _lock, _checks),
    Campaign("certificates", 500, 50_000, _certificate, _certifies),
)
