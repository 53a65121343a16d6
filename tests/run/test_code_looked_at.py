"""What is noted of a piece of code, its modules and its config dicts: each field by itself, as Python means it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.run.test_scripts import HF, read
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import SourceFile
from zerocfg.run.script.code import Code, code_of
from zerocfg.run.script.modules import Module, parse
from zerocfg.source.node import Mapping, Scalar, Sequence, walk
from zerocfg.source.text import SourceText


def noted(text: str) -> Code:
    return code_of(ast.parse(text).body)


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("open(path)", {"path"}),
        ("open(args.config, 'w')", {"args", "config"}),
        ("open(Path(name) / 'x')", {"Path", "name"}),
        ("Path(name).open()", {"Path", "name"}),
        ("path.read_text()", {"path"}),
        ("path.read_bytes()", set()),
        ("open()", set()),
        ("close(path)", set()),
    ],
)
def test_names_in_the_paths_of_files(text: str, opened: set[str]) -> None:
    assert noted(text).opened == opened


@pytest.mark.parametrize(
    ("text", "stored", "changed"),
    [
        ("args.lr = 1", {"lr"}, set()),
        ("args.lr += 1", {"lr"}, set()),
        ("args.a.b = 1", {"b"}, set()),
        ("print(args.lr)", set(), set()),
        ("args.fsdp['x'] = 1", {"fsdp"}, {"x"}),
        ("config['x'] = 1", set(), {"x"}),
        ("config['x']['y'] = 1", set(), {"y"}),
        ("del config['x']", set(), {"x"}),
        ("y = config['x']", set(), set()),
        ("config[key] = 1", set(), set()),
        ("config.pop('x', None)", set(), {"x"}),
        ("config.setdefault('x', 'y')", set(), {"x"}),
        ("config.get('x')", set(), set()),
        ("args.fsdp.update(a=1)", {"fsdp"}, set()),
        ("args.names.append('x')", {"names"}, set()),
        ("args.names.index('x')", set(), set()),
        ("names.append('x')", set(), set()),
        ("setattr(args, 'lr', 1)", {"lr"}, set()),
        ("setattr(args, name, 1)", set(), set()),
        ("setattr(args)", set(), set()),
        ("setattr(args, 1, 2)", set(), set()),
        ("getattr(args, 'lr')", set(), set()),
    ],
)
def test_what_code_changes(text: str, stored: set[str], changed: set[str]) -> None:
    code = noted(text)
    assert (code.stored, code.changed) == (stored, changed)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("args = parser.parse_args()", True),
        ("args, rest = p.parse_known_args()", True),
        ("(a, b) = p.parse_args_into_dataclasses()", True),
        ("args = get_args()", True),
        ("args = megatron.get_args()", True),
        ("args = my_parse_args()", True),
        ("args = parse_arguments()", True),
        ("args = parser.parse_args", False),
        ("args = get_args", False),
        ("args = parse_argsx()", False),
        ("args = p.parse_file()", False),
    ],
)
def test_what_a_parser_gives(text: str, given: bool) -> None:
    assert bool(noted(text).given) is given


def test_methods_that_parsers_are_told_by() -> None:
    text = (
        "p.add_argument('a'); p.add_arguments(x); p.set_defaults(a=1); p.parse_known_args(); p.parse_x(); p.add('b')\n"
    )
    code = noted(text + "parse_args()\n")
    called = [ast.unparse(node.func) for node in code.parsing]
    assert called == ["p.add_argument", "p.add_arguments", "p.set_defaults", "p.parse_known_args", "p.parse_x"]
    assert code.methods == {"add_argument", "add_arguments", "set_defaults", "parse_known_args", "parse_x", "add"}


def test_other_names_of_things() -> None:
    code = noted("a = B\nc = d.E if x else F\ng = {'k': H, 'l': i.J}[n]\nk = m()\no = p[q]\na = r\ns.t = B\n")
    aliases = {name: [ast.unparse(item) for item in things] for name, things in code.aliases.items()}
    assert aliases == {"a": ["B", "r"], "c": ["d.E", "F"], "g": ["H", "i.J"]}
    assert list(noted("x.y\nz.w.v\nf().g").members) == [("x", "y"), ("z", "w")]


def test_dicts_with_a_key_of_deepspeed() -> None:
    code = noted("a = {'train_batch_size': 1}\nb = {'x': {'zero_optimization': {}}}\nc = {'stage': 3}\nd = {k: 1}\n")
    assert [ast.unparse(item) for item in code.dicts] == ["{'train_batch_size': 1}", "{'zero_optimization': {}}"]


# --- modules ----------------------------------------------------------------------------------------------------------


def module(text: str) -> Module:
    parsed = parse(SourceFile("m.py", "script", SourceText("m.py", text)), Path("m.py"))
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from transformers import Trainer\n", "transformers.Trainer"),
        ("import transformers\n", ""),
        ("from transformers import trainer as Trainer\n", "transformers.trainer"),
        ("from transformers.trainer import Trainer\n", "transformers.Trainer"),
        ("from .transformers import Trainer\n", ""),
        ("from mine import Trainer\n", ""),
        ("from trl.trainer import Trainer\n", "trl.Trainer"),
        ("from transformers import Trainer\nclass Trainer(Trainer):\n    pass\n", ""),
        ("from transformers import Trainer\nclass Trainer(Other):\n    pass\n", "transformers.Trainer"),
        ("import transformers as t\nfrom t import Trainer\n", ""),
        ("if x:\n    from transformers import Trainer\n", "transformers.Trainer"),
        ("try:\n    pass\nexcept E:\n    from transformers import Trainer\n", "transformers.Trainer"),
        ("def f():\n    for x in y:\n        from transformers import Trainer\n", "transformers.Trainer"),
        ("match x:\n    case 1:\n        from transformers import Trainer\n", "transformers.Trainer"),
    ],
)
def test_what_a_name_stands_for(text: str, name: str) -> None:
    assert module(text).dotted(ast.Name("Trainer")) == name


def test_names_behind_a_module() -> None:
    def dotted(imports: str, expression: str) -> str:
        return module(imports).dotted(ast.parse(expression, mode="eval").body)

    assert dotted("import transformers\n", "transformers.Trainer") == "transformers.Trainer"
    assert dotted("import transformers\n", "transformers") == ""
    assert dotted("import transformers as t\n", "t.trainer.Trainer") == "transformers.Trainer"
    assert dotted("import accelerate.utils\n", "accelerate.Accelerator") == "accelerate.Accelerator"
    assert dotted("import accelerate.utils as u\n", "u.DeepSpeedPlugin") == "accelerate.DeepSpeedPlugin"
    assert dotted("import numpy\n", "numpy.Trainer") == dotted("", "transformers.Trainer") == ""
    assert dotted("import transformers\n", "f().Trainer") == ""


def test_definitions_and_lines_of_a_module() -> None:
    text = "A = 1\nif A:\n    def f(): pass\nelse:\n    class B: pass\ntry:\n    def g(): pass\nexcept E:\n"
    text += "    def h(): pass\nelse:\n    def i(): pass\nif __name__ == '__main__':\n    def j(): pass\n    run()\n"
    text += "while A:\n    def k(): pass\n"
    found = module(text)
    assert list(found.definitions) == ["f", "B", "g", "i", "h"]
    assert [type(item).__name__ for item in found.body] == ["Assign", "If", "While"]
    assert "j" not in found.definitions


IMPORTED = {
    "train": "{}\ngo()\n",
    "m": "from accelerate import Accelerator\ndef go():\n    Accelerator()\n",
    "p__m": "from accelerate import Accelerator\ndef go():\n    Accelerator()\n",
    "p____init__": "from .m import go\n",
    "src__s": "from accelerate import Accelerator\ndef go():\n    Accelerator()\n",
    "trl__m": "from accelerate import Accelerator\ndef go():\n    Accelerator()\n",
    "q____init__": "def stop():\n    pass\n",
}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from m import go", True),
        ("from .m import go", True),
        ("from p import go", True),
        ("from p.m import go", True),
        ("from .p import go", True),
        ("from ..m import go", False),
        ("from s import go", True),
        ("from q import go", False),
        ("from trl.m import go", False),
        ("from gone.m import go", False),
        ("from p.gone import go", False),
    ],
)
def test_where_modules_are_looked_for(line: str, found: bool, tmp_path: Path) -> None:
    modules = {name.replace("____init__", "/__init__"): text.format(line) for name, text in IMPORTED.items()}
    for name, text in modules.items():
        path = tmp_path / f"{name.replace('__m', '/m').replace('__s', '/s')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert read(tmp_path, train=modules["train"]).reader == ("accelerate" if found else None)


# --- config dicts -----------------------------------------------------------------------------------------------------


def config_of_dict(folder: Path, code: str) -> SourceFile | None:
    script = read(folder, train=f"import deepspeed\n{code}\ndeepspeed.initialize(config=c)\n")
    (call,) = script.calls
    return call.config


def test_a_dict_is_read_with_the_places_of_its_words(tmp_path: Path) -> None:
    code = "n = 4\nc = {'train_batch_size': n * 2, 'a': [1, ('x', None)], 'd': [*e], 'b': f()}"
    config = config_of_dict(tmp_path, code)
    assert config is not None and config.document is not None and config.document.root is not None
    assert config.data() == {"train_batch_size": 8, "a": [1, ["x", None]], "d": ["${code}"], "b": "${code}"}
    text = config.source.text
    kinds = {path: (type(node), text[slice(*node.span)]) for path, node, _ in walk(config.document.root)}
    assert kinds[("train_batch_size",)] == (Scalar, "n * 2")
    assert kinds[("a",)] == (Sequence, "[1, ('x', None)]") and kinds[("a", 1)] == (Sequence, "('x', None)")
    assert kinds[("a", 1, 0)] == (Scalar, "'x'") and kinds[()][0] is Mapping
    assert {text[slice(*entry.key_span)] for _, _, entry in walk(config.document.root) if entry} >= {"'a'", "'b'"}


@pytest.mark.parametrize(
    "code",
    [
        "c = {**d, 'train_batch_size': 1}",
        "c = {k: 1}",
        "c = {1: 2, 'train_batch_size': 1}",
        "c = {'zero_optimization': f(), 'train_batch_size': 1}",
        "c = f()",
        "def f():\n    return {'a': 1}\n    return {'b': 1}\nc = f()",
        "def f():\n    return\nc = f()",
        "def f():\n    pass\nc = f()",
        "c = 'ds.json'",
    ],
)
def test_a_dict_of_which_something_is_not_told(code: str, tmp_path: Path) -> None:
    assert config_of_dict(tmp_path, code) is None


def test_a_dict_that_a_function_makes(tmp_path: Path) -> None:
    config = config_of_dict(tmp_path, "N = 2\ndef f(m):\n    k = 3\n    return {'a': k * N, 'b': m}\nc = f(4)")
    assert config is not None and config.data() == {"a": 6, "b": "${code}"}


def test_parts_of_a_dict_that_goes_on_changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the keys that the script sets or takes out anywhere, and what the text does not tell."""
    code = (
        "import deepspeed\nc = {**base, 'zero_optimization': {'stage': 3, 'x': f(), 'y': 1}, 'steps_per_print': 5,"
        " 'optimizer': {'type': 'Adam'}}\nc['steps_per_print'] = 6\nc['zero_optimization'].pop('y')\n"
        "deepspeed.initialize(config=c)\n"
    )
    (tmp_path / "train.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    runs, _ = find_runs([tmp_path], Files(), scripts=True)
    (run,) = [item for item in runs if item.parts]
    assert run.deepspeed is not None
    assert run.deepspeed.data() == {"zero_optimization": {"stage": 3}, "optimizer": {"type": "Adam"}}


def test_a_dict_that_is_known_is_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(
        f"{HF}c = {{'train_batch_size': 8, 'zero_optimization': {{'stage': 1}}}}\n"
        "Trainer(args=TrainingArguments(output_dir='o', deepspeed=c)).train()\n"
    )
    monkeypatch.chdir(tmp_path)
    runs, _ = find_runs([tmp_path], Files(), scripts=True)
    assert [(run.name, run.parts, run.deepspeed_route) for run in runs] == [("train.py", False, "trainer")]


def test_a_dict_that_is_no_config_of_deepspeed(tmp_path: Path) -> None:
    """With one of its keys, among many that are none."""
    other = "c = {'train_batch_size': 8, 'a': 1, 'b': 2, 'd': 3, 'e': 4, **f}\ndeepspeed.initialize(config=c)\n"
    assert read(tmp_path, train=f"import deepspeed\n{other}").parts == ()
    own = "c = {'train_batch_size': 8, 'zero_optimization': {'stage': 1}, **f}\ndeepspeed.initialize(config=c)\n"
    (part,) = read(tmp_path / "own", train=f"import deepspeed\n{own}").parts
    assert part.data() == {"train_batch_size": 8, "zero_optimization": {"stage": 1}}
