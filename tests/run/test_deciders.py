"""Releases that something else than the project's own statement decides: they are open, and less is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerocfg import api
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import Run
from zerocfg.run.releases import with_versions

LINE = "torchrun train.py --per_device_train_batch_size 1 --save_strategy no\n"


def run_of(folder: Path, files: dict[str, str]) -> Run:
    (folder / ".git").mkdir()
    for name, text in {"run.sh": LINE, "train.py": "print(1)\n", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    runs, _ = find_runs([folder], Files(), root=folder)
    (run,) = with_versions([run for run in runs if run.launch is not None], {})
    return run


CASES: dict[str, tuple[dict[str, str], set[str], set[str]]] = {
    # requirements of requirements
    "a package that pins": ({"requirements.txt": "rankify[all]\n"}, {"transformers"}, set()),
    "beside the bare library": ({"requirements.txt": "rankify\ntransformers\n"}, {"transformers"}, set()),
    "beside a statement": ({"requirements.txt": "rankify\ntransformers==4.45.2\n"}, {"trl"}, set()),
    "in a group": (
        {"pyproject.toml": '[project]\ndependencies = ["unsloth>=2025.1"]\n'},
        {"transformers", "trl"},
        set(),
    ),
    "by the line's script": ({"run.sh": f"pip install unsloth\n{LINE}"}, {"transformers", "trl"}, set()),
    "another package": ({"requirements.txt": "peft\nnumpy\n"}, set(), set()),
    "nothing": ({}, set(), set()),
    # TRL is not named, and what is named admits no newest TRL
    "TRL beside an old transformers": ({"requirements.txt": "transformers==4.38.2\n"}, {"trl"}, set()),
    "TRL beside a new transformers": ({"requirements.txt": "transformers==5.23.0\n"}, set(), set()),
    "TRL beside an old accelerate": ({"requirements.txt": "accelerate==1.3.0\n"}, {"trl"}, set()),
    "TRL of today's major release": ({"requirements.txt": "accelerate==1.9.0\n"}, set(), set()),
    "TRL beside an old accelerate or a new one": ({"requirements.txt": "accelerate>=1.3.0\n"}, set(), set()),
    "TRL that is stated": ({"requirements.txt": "transformers==4.38.2\ntrl>=0.9\n"}, set(), set()),
    "all with an old Python": (
        {"requirements.txt": "deepspeed==0.16.4\n", ".python-version": "3.9\n"},
        {"transformers", "trl"},
        set(),
    ),
    "with a Python that takes today's major release": (
        {"requirements.txt": "deepspeed==0.16.4\n", ".python-version": "3.10\n"},
        set(),
        set(),
    ),
    # forks
    "a fork": ({"requirements.txt": "accelerate-kt\n"}, {"accelerate"}, {"accelerate"}),
    "a fork with a release": ({"requirements.txt": "Accelerate_KT==1.14.0.post4\n"}, {"accelerate"}, {"accelerate"}),
    "a fork by an extra": (
        {"requirements.txt": "ktransformers[sft]\n"},
        {"accelerate", "transformers"},
        {"accelerate", "transformers"},
    ),
    "without that extra": ({"requirements.txt": "ktransformers\n"}, set(), set()),
    "a fork in a part of the project": (
        {"requirements.txt": "accelerate==1.15.0\n", "requirements/kt.txt": "accelerate-kt\n"},
        set(),
        {"accelerate"},
    ),
    "plug-ins": ({"requirements.txt": "deepspeed-kernels\ntransformers-stream-generator\n"}, set(), set()),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_open(case: str, tmp_path: Path) -> None:
    files, undetermined, forked = CASES[case]
    run = run_of(tmp_path, files)
    assert (set(run.undetermined), set(run.forked)) == (undetermined, forked)


@pytest.mark.parametrize(("stated", "told"), [("accelerate-kt", False), ("accelerate-fft", True), ("accelerate", True)])
def test_a_key_that_a_fork_may_have(stated: str, told: bool, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text(f"{stated}\n")
    config = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2\nkt_config: {}\n"
    (tmp_path / "acc.yaml").write_text(config)
    codes = {item.code for item in api.lint(tmp_path).diagnostics}
    assert ("ZC101" in codes) is told


@pytest.mark.parametrize(
    ("folder", "pin"),
    [
        ("/home/me/thing/sub", "==4.51.3"),
        ("/data/sub", "==4.51.3"),
        ("/sub/other", None),
        ("sub", "==4.51.3"),
        ("other", None),
        ("", "==4.39.2"),
    ],
)
def test_a_line_that_changes_into_a_folder_of_its_machine(folder: str, pin: str | None, tmp_path: Path) -> None:
    """That of the repository is meant which ends in its names and holds the script; where none does, it is not here."""
    script = "train.py" if folder else "root.py"
    line = LINE.replace("train.py", f"code/{script}")
    files = {
        "train.py": "",
        "run.sh": f"F={folder}\nrun() {{\n  {line}}}\n{'cd $F' if folder else ''}\nrun\n",
        "sub/code/train.py": "print(1)\n",
        "code/root.py": "print(1)\n",
        "sub/requirements.txt": "transformers==4.51.3\n",
        "requirements.txt": "transformers==4.39.2\n",
    }
    run = run_of(tmp_path, files)
    assert run.versions.get("transformers") == pin
    assert ("transformers" in run.undetermined) is (pin is None)
    assert (run.entry_point is not None) is (pin is not None)
