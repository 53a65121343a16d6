"""Collect the wheels that a machine with a card, torch and no network needs to run the checks.

    python benchmarks/gpu/wheels.py --out FOLDER [--python 3.12] [--platform TAG...] [--without NAME...] [--list]

The list is derived: the requirements of zerocfg and of its extra "smoke" in pyproject.toml, with all that they require,
in the releases of requirements-dev.lock and checked by its hashes. Left out is torch, which differs by machine, with
what only torch requires. ``--without``: what the machine has already, with what only that requires. ``--list``: print
the list and fetch nothing. What is published as source only (DeepSpeed) is built here, which needs torch here; the
wheel has to be one for every platform.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements-dev.lock"
EXTRA = "smoke"
TORCH = "torch"
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17)), "manylinux2014_x86_64")


@dataclass(frozen=True)
class Pin:
    """A release in the lock: ``marker`` of the environments that it is for, ``via``: the packages that require it."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    via: frozenset[str]

    @property
    def line(self) -> str:
        """The line of a requirements file."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash={one}" for one in self.hashes)])


def read_lock(text: str) -> list[Pin]:
    """The releases of a lock as `uv pip compile --generate-hashes` writes it."""
    pins = []
    for entry in re.split(r"\n(?=[a-z0-9])", re.sub(r"\A(#.*\n)+", "", text)):
        head, *rest = entry.splitlines()
        match = re.match(r"([a-z0-9._-]+)==([^ ;]+)(?: ; (.*?))? \\$", head)
        if match is None:
            raise ValueError(f"not a release: {head}")
        hashes = re.findall(r"--hash=(\S+)", entry)
        comments = [line.strip().lstrip("#").strip() for line in rest if line.strip().startswith("#")]
        via = {normalize(line.removeprefix("via").strip()) for line in comments} - {""}
        pins.append(Pin(match[1], match[2], match[3] or "", tuple(hashes), frozenset(via)))
    return pins


def normalize(name: str) -> str:
    """The name of a package alone, as indexes spell it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s\[;<>=!~(]", name)[0]).lower()


def read_roots(pyproject: Path = ROOT / "pyproject.toml") -> set[str]:
    """The packages that zerocfg requires, and those of the extra."""
    import tomllib

    project = tomllib.loads(pyproject.read_text())["project"]
    return {normalize(one) for one in (*project["dependencies"], *project["optional-dependencies"][EXTRA])}


def select(pins: Iterable[Pin], roots: Iterable[str], python: str, without: Iterable[str] = ()) -> list[Pin]:
    """The releases for that Python on Linux that ``roots`` lead to on a way around ``without`` and torch."""
    from packaging.markers import Marker

    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
    }
    left_out = {TORCH, *map(normalize, without)}
    possible = [pin for pin in pins if pin.name not in left_out]
    possible = [pin for pin in possible if not pin.marker or Marker(pin.marker).evaluate(environment)]
    chosen = set(roots) - left_out
    while True:
        more = {pin.name for pin in possible if pin.via & chosen} - chosen
        if not more:
            return [pin for pin in possible if pin.name in chosen]
        chosen |= more


def fetch(pin: Pin, out: Path, python: str, platforms: Sequence[str]) -> None:
    """Put the wheel of a release into a folder: the published one, or one that is built here."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text(pin.line + "\n")
        words = ["--no-deps", "--require-hashes", "-r", str(requirements)]
        tags = [word for tag in platforms for word in ("--platform", tag)]
        target = ["--only-binary=:all:", "--python-version", python, "--implementation", "cp", *tags]
        if subprocess.run([*pip, "download", *words, *target, "-d", str(out)], capture_output=True).returncode == 0:
            return
        subprocess.run([*pip, "wheel", *words, "--no-build-isolation", "-w", folder], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        if not wheel.name.endswith("-none-any.whl"):
            raise ValueError(f"{wheel.name} is for this machine only")
        (out / wheel.name).write_bytes(wheel.read_bytes())


def main() -> int:
    parser = argparse.ArgumentParser(description="Collect the wheels for a machine with a card and no network.")
    parser.add_argument("--out", type=Path, default=ROOT / ".whl", help="the folder for wheels")
    parser.add_argument("--python", default="3.12", help="the Python of that machine")
    parser.add_argument("--platform", action="append", default=[], metavar="TAG", help="wheels of these platforms")
    parser.add_argument("--without", nargs="*", default=[], metavar="NAME", help="what that machine has")
    parser.add_argument("--list", action="store_true", help="print the list and fetch nothing")
    given = parser.parse_args()
    pins = select(read_lock(LOCK.read_text()), read_roots(), given.python, given.without)
    if given.list:
        print("\n".join(f"{pin.name}=={pin.version}" for pin in pins))
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    for pin in pins:
        fetch(pin, given.out, given.python, given.platform or PLATFORMS)
    wheels = sorted(given.out.glob("*.whl"), key=lambda path: path.stat().st_size)
    for wheel in wheels:
        print(f"{wheel.stat().st_size / 1e6:8.2f} MB  {wheel.name}")
    print(f"{sum(wheel.stat().st_size for wheel in wheels) / 1e6:8.2f} MB  {len(wheels)} wheels in {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
