"""What zerocfg writes: fixes of damaged files, builds that are killed or run out of room. No file is ever half."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path
from random import Random

from tests.fuzz.artefacts import example
from tests.fuzz.campaign import BrokenError, Campaign, Input
from tests.fuzz.command import zerocfg
from tests.fuzz.linting import repository
from zerocfg.source.load import load

OWN = (".yaml", ".yml", ".json", ".hjson")
FIX = ("lint", "--fix", "--unsafe-fixes", ".")


def _texts(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def _no_temporary(folder: Path) -> None:
    left = [path.name for path in folder.rglob("*") if path.name.endswith(".zerocfg")]
    if left:
        raise BrokenError(f"temporary files are left: {left}")


def _fixed(folder: Path, random: Random) -> None:
    """A file that could be read can be read afterwards, and a second call has nothing to do."""
    before = _texts(folder)
    readable = {name for name in before if name.endswith(OWN) and load(folder / name).root is not None}
    words = FIX if random.random() < 0.7 else ("lint", "--fix", ".")
    zerocfg(*words)
    once = _texts(folder)
    if set(once) != set(before):
        raise BrokenError(f"files came or went: {sorted(set(once) ^ set(before))}")
    for name in readable:
        if load(folder / name).root is None:
            raise BrokenError(f"{name} cannot be read after the fix: {once[name][:400]!r}")
    zerocfg(*words)
    again = _texts(folder)
    changed = [name for name in once if again[name] != once[name]]
    if changed:
        raise BrokenError(
            f"a second call changes {changed}: {once[changed[0]][:300]!r} becomes {again[changed[0]][:300]!r}"
        )


def _child(words: tuple[str, ...], room: int | None = None) -> int:
    """A command in a process of its own, whose id is returned. ``room``: bytes that a file may have."""
    child = os.fork()
    if not child:
        code = 70
        try:
            if room is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
            code = zerocfg(*words).code
        except BrokenError as error:
            os.write(2, f"{error}\n".encode())
        finally:
            os._exit(code)
    return child


def _kill(words: tuple[str, ...], seconds: float) -> None:
    child = _child(words)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _project(random: Random) -> Input:
    return {name: data for name, data in example("quickstart").items() if not name.startswith("built/")}


def _built(folder: Path) -> dict[str, bytes]:
    return {
        name: data for name, data in _texts(folder).items() if name.startswith("out/") and not name.endswith(".lock")
    }


def _killed_build(folder: Path, random: Random) -> None:
    words = ("build", ".", "-o", "out")
    _kill(words, random.random() * 0.5)
    if random.random() < 0.5:
        _kill(words, random.random() * 0.5)
    done = zerocfg(*words)
    if done.code:
        raise BrokenError(f"the build after a killed one: {done.err[-400:]}")
    healed = _built(folder)
    _no_temporary(folder)
    again = zerocfg("build", ".", "-o", "fresh")
    fresh = {
        name.replace("fresh/", "out/", 1): data for name, data in _texts(folder).items() if name.startswith("fresh/")
    }
    differing = [name for name in healed if fresh.get(name) != healed[name] and b"fresh" not in fresh.get(name, b"")]
    if again.code or differing:
        raise BrokenError(f"a healed build is not a fresh one: {differing}")


WITH_FIXES = {
    "accelerate.yaml": b"distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: no\ndeepspeed_config:\n"
    b"  deepspeed_config_file: ds.json\n",
    "ds.json": b'{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "overlap_com": true},\n'
    b' "bf16": {"enabeld": true}}\n',
    "run.sh": b"accelerate launch --config_file accelerate.yaml train.py\n",
}


def _killed_fix(folder: Path, random: Random) -> None:
    before = _texts(folder)
    _kill(FIX, random.random() * 0.5)
    for name in before:
        if name.endswith(OWN) and load(folder / name).root is None:
            raise BrokenError(f"{name} is damaged by a killed fix")
    zerocfg(*FIX)
    healed = _texts(folder)
    _no_temporary(folder)
    for name, data in before.items():
        (folder / name).write_bytes(data)
    zerocfg(*FIX)
    if _texts(folder) != healed:
        raise BrokenError("a fix after a killed one gives something else than a fix")


def _full_disk(folder: Path, random: Random) -> None:
    """No room for the whole output: it says so, nothing that was there is lost, and with room it works."""
    words: tuple[str, ...] = ("build", ".", "-o", "out") if (folder / "zerocfg.yaml").exists() else FIX
    before = _texts(folder)
    room = random.choice((0, 1, 100, random.randrange(4000)))
    _, status = os.waitpid(_child(words, room), 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 1, 2, 3):
        raise BrokenError(f"{' '.join(words)} with {room} bytes of room ends with {code}")
    after = _texts(folder)
    lost = [name for name in before if after.get(name) != before[name]]
    if code == 2 and lost:
        raise BrokenError(f"{' '.join(words)} with {room} bytes of room changed {lost} and failed")
    _no_temporary(folder)
    if zerocfg(*words).code == 2:
        raise BrokenError(f"{' '.join(words)} does not work after it ran out of room")


def _limited(random: Random) -> Input:
    return _project(random) if random.random() < 0.5 else dict(WITH_FIXES)


WRITES = (
    Campaign("fixes", 300, 20_000, repository, _fixed),
    Campaign("killed-builds", 30, 1_000, _project, _killed_build, measured=False),
    Campaign("killed-fixes", 30, 1_000, lambda random: dict(WITH_FIXES), _killed_fix, measured=False),
    Campaign("full-disk", 30, 1_000, _limited, _full_disk, measured=False),
)
