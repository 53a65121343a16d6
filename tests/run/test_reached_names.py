"""Names that modules of a repository hand on to each other: by stars, over many modules, as attributes of a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.test_scripts import HF, read
from zerocfg.run.discover import Files
from zerocfg.run.model import Script
from zerocfg.run.script.reading import read_script

LOOP = "from accelerate import Accelerator\ndef go():\n    Accelerator()\n"


def modules_of(script: Script) -> list[str]:
    return [file.name.rpartition("/")[2] for file in script.files]


STARS: dict[str, tuple[dict[str, str], str | None]] = {
    "a function of the other module": ({"train": "from m import *\ngo()\n", "m": LOOP}, "accelerate"),
    "what the other module imports": (
        {"train": "from m import *\ngo()\n", "m": "from n import go\n", "n": LOOP},
        "accelerate",
    ),
    "the second of two stars": (
        {"train": "from other import *\nfrom m import *\ngo()\n", "other": "def stop():\n    pass\n", "m": LOOP},
        "accelerate",
    ),
    "a star within the package": (
        {
            "train": "from p.start import main\nmain()\n",
            "p__start": "from .m import *\ndef main():\n    go()\n",
            "p__m": LOOP,
        },
        "accelerate",
    ),
    "a name that the other module lacks": ({"train": "from m import *\nstart()\n", "m": LOOP}, None),
    "a name of its own": ({"train": "from m import *\ndef go():\n    pass\ngo()\n", "m": LOOP}, None),
    "a star of nothing here": ({"train": "from nowhere import *\ngo()\n", "m": LOOP}, None),
    "a name that an import gives": (
        {"train": "from m import *\nfrom n import go\ngo()\n", "m": LOOP, "n": "def go():\n    pass\n"},
        None,
    ),
}


@pytest.mark.parametrize("case", STARS)
def test_names_of_a_star(case: str, tmp_path: Path) -> None:
    modules, reader = STARS[case]
    assert read(tmp_path, **modules).reader == reader


@pytest.mark.parametrize(("hops", "known"), [(1, True), (3, True), (9, True), (10, False)])
def test_a_dataclass_is_looked_for_over_modules(hops: int, known: bool, tmp_path: Path) -> None:
    """What is behind the second import is not read as code, but a class is found over up to nine modules."""
    modules = {"train": "from m1 import Mine\nfrom transformers import HfArgumentParser\nHfArgumentParser(Mine)\n"}
    modules |= {f"m{at}": f"from m{at + 1} import Mine\n" for at in range(1, hops)}
    modules[f"m{hops}"] = "class Mine:\n    size: int = 3\n"
    script = read(tmp_path, **modules)
    assert script.options == (frozenset({"size"}) if known else None)
    if known:
        assert modules_of(script) == ["train.py", *(f"m{at}.py" for at in range(1, hops + 1))]


@pytest.mark.parametrize("last", ["def Mine():\n    pass\n", "Mine = 1\n", "class Mine(:\n", "import Mine\n"])
def test_a_name_that_is_no_class(last: str, tmp_path: Path) -> None:
    """Behind the second import; whatever it is, its options are unknown."""
    modules = {"m1": "from m2 import Mine\n", "m2": "from m3 import Mine\n", "m3": last}
    train = "from m1 import Mine\nfrom transformers import HfArgumentParser\nHfArgumentParser(Mine)\n"
    script = read(tmp_path, train=train, **modules)
    assert script.options is None and script.reader is None


MEMBERS: dict[str, tuple[dict[str, str], str | None]] = {
    "a function of a module": ({"train": "import m\nm.go()\n", "m": LOOP}, "accelerate"),
    "of a module of a package": ({"train": "from p import m\nm.go()\n", "p__m": LOOP}, "accelerate"),
    "of a class, which is no module": (
        {"train": "from m import Some\nSome.go()\n", "m": f"{LOOP}class Some:\n    pass\n"},
        None,
    ),
    "another of the module": ({"train": "import m\nm.stop()\n", "m": LOOP}, None),
    "a class behind a module": (
        {"train": "import m\nclass Mine(m.Base):\n    pass\nMine()\n", "m": f"{HF}class Base(Trainer):\n    pass\n"},
        "transformers",
    ),
    "a class behind a class": (
        {
            "train": "from m import Base\nBase.Inner()\n",
            "m": f"{HF}class Base:\n    class Inner(Trainer):\n        pass\n",
        },
        None,
    ),
}


@pytest.mark.parametrize("case", MEMBERS)
def test_what_is_reached_as_an_attribute(case: str, tmp_path: Path) -> None:
    modules, reader = MEMBERS[case]
    assert read(tmp_path, **modules).reader == reader


def test_relative_imports_go_up_by_their_dots(tmp_path: Path) -> None:
    """And never to a folder above that happens to have such a module."""
    start = "from p.q.r import main\nmain()\n"
    packages = {"p____init__": "", "p__q____init__": "", "go": LOOP, "p__go": LOOP, "p__q__go": LOOP}
    for line, found in (
        ("from .go import go", "q/go.py"),
        ("from ..go import go", "p/go.py"),
        ("from ...go import go", "go.py"),
        ("from . import go as m", "q/go.py"),
        ("from .. import go as m", "p/go.py"),
        ("from go import go", "q/go.py"),
        ("from ....go import go", None),
        ("from .p import go", None),
    ):
        called = "m.go()" if " as m" in line else "go()"
        folder = tmp_path / str(abs(hash(line)))
        modules = {**packages, "train": start, "p__q__r": f"{line}\ndef main():\n    {called}\n"}
        for name, text in modules.items():
            path = folder / f"{name.replace('____init__', '/__init__').replace('__q', '/q').replace('__go', '/go')}.py"
            path = Path(str(path).replace("p__", "p/").replace("q__", "q/"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        script = read_script(folder / "train.py", Files(), folder)
        read = [file.name for file in script.files]
        assert script.reader == ("accelerate" if found else None), line
        assert found is None or read[-1].endswith(found), (line, read)


def test_lines_of_a_class_run_where_it_is_reached(tmp_path: Path) -> None:
    text = "from accelerate import Accelerator\nclass A:\n    held = Accelerator()\n"
    assert read(tmp_path, train=f"{text}A()\n").reader == "accelerate"
    assert read(tmp_path / "none", train=text).reader is None


def test_a_script_is_read_again_where_a_module_changed(tmp_path: Path) -> None:
    read(tmp_path, train="from m import go\ngo()\n", m=LOOP)
    files = Files()

    def reader(of: Files) -> object:
        return read_script(tmp_path / "train.py", of, tmp_path)

    first = reader(files)
    assert reader(files) is first
    other = files.with_texts({str((tmp_path / "m.py").resolve()): "def go():\n    pass\n"})
    again = reader(other)
    assert isinstance(again, Script) and again.reader is None and isinstance(first, Script)
    assert first.reader == "accelerate" and reader(files) is not again


def test_trainers_and_the_arguments_that_a_parser_fills(tmp_path: Path) -> None:
    """Of two trainers the one counts whose arguments alone the parser fills."""
    both = f"{HF}from transformers import HfArgumentParser\nfrom trl import SFTConfig, SFTTrainer\n"
    both += "SFTTrainer(model=None)\nTrainer(model=None)\n"
    for parsed, reader in (
        ("HfArgumentParser(TrainingArguments)", "transformers"),
        ("HfArgumentParser(SFTConfig)", "trl"),
        ("HfArgumentParser((SFTConfig, TrainingArguments))", None),
        ("print()", None),
    ):
        assert read(tmp_path / parsed[:20].strip("("), train=f"{both}{parsed}\n").reader == reader, parsed


def test_parsers_that_let_unknown_options_through(tmp_path: Path) -> None:
    start = "from transformers import HfArgumentParser, TrainingArguments\np = HfArgumentParser(TrainingArguments)\n"
    for number, (call, lenient) in enumerate(
        (
            ("p.parse_args_into_dataclasses()", False),
            ("p.parse_args_into_dataclasses(args=[])", False),
            ("p.parse_args_into_dataclasses(look_for_args_file=True)", False),
            ("p.parse_args_into_dataclasses(return_remaining_strings=True)", True),
            ("p.parse_args_into_dataclasses(return_remaining_strings=False)", False),
            ("p.parse_args_into_dataclasses(return_remaining_strings=x)", True),
            ("p.parse_args_and_config(fail_with_unknown_args=False)", True),
            ("p.parse_args_and_config(fail_with_unknown_args=True)", False),
            ("p.parse_json_file('x', allow_extra_keys=True)", True),
            ("p.parse_args_into_dataclasses(**k)", True),
            ("p.parse_known_args()", True),
            ("p.set_defaults(return_remaining_strings=True)", False),
        )
    ):
        assert read(tmp_path / str(number), train=f"{start}{call}\n").lenient is lenient, call


def test_whose_loop_counts_where_a_script_shows_several(tmp_path: Path) -> None:
    """A Trainer makes its own Accelerator and engine; an engine beside `prepare` is another model's."""
    shown = {
        "t": f"{HF}Trainer(model=None)\n",
        "l": "from trl import SFTTrainer\nSFTTrainer(model=None)\n",
        "a": "from accelerate import Accelerator\nacc = Accelerator()\n",
        "p": "acc.prepare(m)\n",
        "d": "import deepspeed\ndeepspeed.initialize()\n",
        "s": "from swift import sft_main\nsft_main()\n",
        "f": "from lightning import Trainer as L\nL()\n",
        "o": "from trl import PPOConfig\nPPOConfig(ppo_epochs=4)\n",
        "n": "from trl import PPOConfig\nPPOConfig(num_ppo_epochs=4)\n",
    }
    for parts, reader, foreign in (
        ("t", "transformers", ""),
        ("ta", "transformers", ""),
        ("tad", "transformers", ""),
        ("la", "trl", ""),
        ("tl", None, ""),
        ("a", "accelerate", ""),
        ("ad", None, ""),
        ("apd", "accelerate", ""),
        ("d", "deepspeed", ""),
        ("s", "swift", ""),
        ("st", None, ""),
        ("sa", None, ""),
        ("f", None, "lightning"),
        ("fa", None, "lightning"),
        ("ft", None, ""),
        ("to", None, ""),
        ("tn", "transformers", ""),
    ):
        script = read(tmp_path / parts, train="".join(shown[part] for part in parts))
        assert (script.reader, script.foreign) == (reader, foreign), parts
        assert (script.shown_by is not None) is bool(reader or foreign), parts
