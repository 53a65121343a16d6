"""Pieces of training scripts as Python has them, names of models, placeholders, and where runs are looked for."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import pytest

from tests.run.test_effective import file
from tests.run.test_reader import CALL, TRAIN
from tests.run.test_scripts import HF, read
from zerocfg.run.discover import Files
from zerocfg.run.hub import cache_folder, find_config, is_hub_name
from zerocfg.run.link import find_runs, runs_from_spec
from zerocfg.run.linking.missing_files import created_before_launch, has_similar_files
from zerocfg.run.model import UNKNOWN, FromLine, Run, Script, Setting, SourceFile
from zerocfg.run.script.loops import own_loop
from zerocfg.run.script.options import _DEEPEST_BASE
from zerocfg.run.script.values import Values, assigned
from zerocfg.run.templates import (
    has_placeholders,
    is_template,
    opened_by_script,
    plain_or_unknown,
    stops_at_placeholder,
)
from zerocfg.run.unchecked import unchecked_files, without_unknown
from zerocfg.run.widths import model_summary
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

# --- values -----------------------------------------------------------------------------------------------------------


def value(code: str, parsed: frozenset[str] = frozenset()) -> Any:
    """What is known of `x` after some code."""
    return Values([assigned(ast.parse(code).body)], {"lr": 0.1}, parsed).of(ast.Name("x"))


@pytest.mark.parametrize(
    "code",
    [
        "x = 1",
        "x = 'a' + 'b'",
        "x = 2 * 3 - 1",
        "x = 7 // 2",
        "x = 7 / 2",
        "x = -2 + 5",
        "x = -(2.5)",
        "x = not True",
        "x = [1, [2, 'a']]",
        "x = {'a': 1, 'b': {'c': [2]}}",
        "x = dict(a=1, b=dict(c=2))",
        "x = None",
        "y = 2\nx = y * 3",
        "y = x = 4",
        "x: int = 5",
        "if __name__ == '__main__':\n    x = 6",
        "x = 1000 * 1000",
        "x = str('a')",
    ],
)
def test_values_are_those_of_python(code: str) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(code, namespace)
    assert value(code) == namespace["x"] and type(value(code)) is type(namespace["x"])


@pytest.mark.parametrize(
    "code",
    [
        "x = 1\nx = 2",
        "x = 1\nx += 1",
        "for x in (1,):\n    pass",
        "with open('a') as x:\n    pass",
        "x, y = 1, 2",
        "*x, y = 1, 2",
        "x = {'a': 1}\nx['b'] = 2",
        "x = {'a': {}}\nx['a']['b'] = 2",
        "x = []\nx.append(1)",
        "x = {}\nx.update(a=1)",
        "while a:\n    x = 1",
        "try:\n    x = 1\nexcept E:\n    pass",
        "if a:\n    if b:\n        x = 1",
        "def f():\n    x = 1",
        "global x\nx = 1",
        "x = f(1)",
        "x = 1 if a else 2",
        "x = [*y]",
        "x = {**y}",
        "x = {1: 2}",
        "x = dict(**y)",
        "x = -True",
        "x = not 1",
        "x = 1 / 0",
        "x = 'a' * 2",
        "x = True + 1",
        "x = 10 ** 2",
        "x = 1000000000 * 1000000001",
        "x = b'a'",
        "x = x",
        "(x := 1)",
    ],
)
def test_values_that_the_text_does_not_tell(code: str) -> None:
    assert value(code) is UNKNOWN


@pytest.mark.parametrize("deep", [39, 40, 41])
def test_the_deepest_value(deep: int) -> None:
    """Lists in lists: what is in more than forty is not looked at."""
    found = value(f"x = {'[' * deep}1{']' * deep}")
    for _ in range(min(deep, 40)):
        assert isinstance(found, list)
        (found,) = found
    assert found == 1 if deep < 40 else found is UNKNOWN


def test_paths_and_options_in_code() -> None:
    assert value("import os\nx = os.path.join('a', 'b.json')") == os.path.join("a", "b.json")  # noqa: PTH118
    assert value("x = Path('a.json')") == value("x = os.path.abspath('a.json')") == "a.json"
    assert value("x = Path('a', 'b')") is value("x = os.path.join(a, 'b')") is UNKNOWN
    assert value("x = args.lr", frozenset({"args"})) == FromLine("lr", 0.1)
    assert value("x = args.lr") is value("x = args.other", frozenset({"args"})) is UNKNOWN
    assert value("x = 1000000000 * 1000000000") == 10**18, "the largest"
    assert value("x = [a, 1]") == [UNKNOWN, 1]


@pytest.mark.parametrize(
    ("body", "own"),
    [
        ("def train(self): pass", True),
        ("def _inner_training_loop(self): pass", True),
        ("def evaluate(self): pass", False),
        ("def train(self): return super().train()", False),
        ("def train(self): return Base.train(self)", False),
        ("def train(self): return Other.train(self)", True),
        ("def train(self): return self._inner_training_loop()", False),
        ("def _inner_training_loop(self): return self._inner_training_loop()", True),
        ("def train(self): return self.train()", True),
        ("def train(self): deepspeed_init(self)", False),
        ("def train(self): super().evaluate()", True),
    ],
)
def test_a_class_with_a_loop_of_its_own(body: str, own: bool) -> None:
    (definition,) = ast.parse(f"class Mine(Base):\n    {body}\n").body
    assert isinstance(definition, ast.ClassDef) and own_loop(definition) is own


# --- how deep code is followed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deep", "reader", "whole"), [(1, "transformers", True), (2, "transformers", True), (3, None, False)]
)
def test_imports_are_followed_twice(deep: int, reader: str | None, whole: bool, tmp_path: Path) -> None:
    modules = {"train": "from m1 import go1\ngo1()\n"}
    for at in range(1, deep):
        modules[f"m{at}"] = f"from m{at + 1} import go{at + 1}\ndef go{at}():\n    go{at + 1}()  # the Trainer\n"
    modules[f"m{deep}"] = f"{HF}def go{deep}():\n    Trainer(model=None).train()\n"
    script = read(tmp_path, **modules)
    assert (script.reader, script.whole) == (reader, deep < 3)


@pytest.mark.parametrize(("more", "known"), [(0, True), (1, False)])
def test_bases_of_a_dataclass(more: int, known: bool, tmp_path: Path) -> None:
    bases = _DEEPEST_BASE + 1 + more
    text = f"{HF}from transformers import HfArgumentParser\nclass C0(TrainingArguments):\n    mine: int = 1\n"
    text += "".join(f"class C{at}(C{at - 1}):\n    pass\n" for at in range(1, bases))
    script = read(tmp_path, train=f"{text}HfArgumentParser(C{bases - 1}).parse_args_into_dataclasses()\n")
    assert (script.options is not None) is known
    assert script.options is None or {"mine", "learning_rate"} <= script.options


PARSERS = {
    "argparse": ("p.add_argument('--a-b', '-c', default=2)", {"a_b", "c"}, False),
    "a name that is put together": ("p.add_argument(name)", None, False),
    "defaults": ("p.add_argument('--a'); p.set_defaults(a=3)", {"a"}, False),
    "defaults from elsewhere": ("p.add_argument('--a'); p.set_defaults(**d)", None, False),
    "lenient": ("p.add_argument('--a'); p.parse_known_args()", {"a"}, True),
    "of DeepSpeed": (
        "import deepspeed; deepspeed.add_config_arguments(p)",
        {"deepspeed", "deepspeed_config", "deepscale", "deepscale_config"},
        False,
    ),
    "of lightning": ("p.add_arguments(x)", None, False),
}


@pytest.mark.parametrize("name", PARSERS)
def test_options_that_a_parser_takes(name: str, tmp_path: Path) -> None:
    code, options, lenient = PARSERS[name]
    script = read(tmp_path, train=f"import argparse\np = argparse.ArgumentParser()\n{code}\np.parse_args()\n")
    assert script.options == options and script.lenient is lenient
    if name == "defaults":
        assert script.defaults["a"].value == 3


# --- models -----------------------------------------------------------------------------------------------------------


def test_where_the_config_of_a_model_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout of huggingface_hub's cache."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    beside = tmp_path / "specs"
    (beside / "local").mkdir(parents=True)
    (beside / "local" / "config.json").write_text("{}")
    (beside / "one.json").write_text("{}")
    assert find_config("one.json", beside) == beside / "one.json"
    assert find_config("local", beside) == beside / "local" / "config.json"
    assert find_config("org/name", beside) is None
    model = tmp_path / "cache" / "models--org--name"
    for commit in ("aaaa1111", "bbbb2222"):
        (model / "snapshots" / commit).mkdir(parents=True)
        (model / "snapshots" / commit / "config.json").write_text("{}")
    assert find_config("org/name", beside) is None, "which of two, nothing says"
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("bbbb2222\n")
    assert find_config("org/name", beside) == model / "snapshots" / "bbbb2222" / "config.json"
    (model / "refs" / "main").write_text("../x")
    assert find_config("org/name", beside) is None
    (model / "snapshots" / "bbbb2222" / "config.json").unlink()
    (model / "snapshots" / "bbbb2222").rmdir()
    assert find_config("org/name", beside) == model / "snapshots" / "aaaa1111" / "config.json"
    assert find_config("a\0b", beside) is None


def test_names_of_the_hub_and_folders_of_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "org/name",
        "name",
        "a.b-c_d/e.f",
        "org/name/x",
        "./name",
        "/name",
        "name.json",
        "n.yaml",
        "n" * 201,
        "a b",
    )
    assert [is_hub_name(one) for one in names] == [True] * 3 + [False] * 7
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    found = [cache_folder()]
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, f"/{name}")
        found.append(cache_folder())
    home = Path.home() / ".cache/huggingface/hub"
    assert found == [
        *(home, Path("/XDG_CACHE_HOME/huggingface/hub"), Path("/HF_HOME/hub")),
        *(Path("/HUGGINGFACE_HUB_CACHE"), Path("/HF_HUB_CACHE")),
    ]


@pytest.mark.parametrize(
    ("config", "own", "text", "widest"),
    [
        ({"model_type": "llama", "hidden_size": 64}, 64, None, None),
        ({"model_type": "llama"}, 4096, None, None),
        ({"model_type": "gpt2", "n_embd": 32}, 32, None, None),
        ({"model_type": "gpt2"}, 768, None, None),
        ({"model_type": "mine", "hidden_size": 8}, 8, None, None),
        ({"model_type": "mine", "hidden_size": True}, None, None, None),
        ({"model_type": "mine", "hidden_sizes": [4, 16, "x"]}, None, None, 16),
        ({"model_type": "mine", "text_config": {"hidden_size": 8}}, None, 8, None),
        ({"model_type": "mine", "text_config": {"model_type": "gpt2", "n_embd": 24}}, None, 24, None),
        ({"model_type": "mine", "text_config": 3}, None, None, None),
        ({"model_type": "aimv2"}, None, 768, None),
        ({"model_type": "aimv2", "text_config": {"hidden_size": 32}}, None, 32, None),
        ({"model_type": "convnext"}, None, None, 768),
        ({"model_type": "convnext", "hidden_sizes": [8, 64]}, None, None, 64),
        ({"model_type": "clap"}, 768, None, None),
        ({"model_type": "voxtral", "text_config": {"hidden_size": 64}}, 64, None, None),
        ({"model_type": "fuyu"}, None, 4096, None),
        ({"model_type": "fuyu", "hidden_size": 128}, None, 128, None),
        ({"model_type": "blt", "hidden_size": 96}, 96, None, None),
    ],
)
def test_the_width_of_a_model(config: dict[str, Any], own: int | None, text: int | None, widest: int | None) -> None:
    """As the config classes of transformers have it."""
    found = model_summary("m", config)
    assert found is not None
    assert (found.hidden_size, found.text_hidden_size, found.max_hidden_sizes) == (own, text, widest)
    assert found.width_known is (config["model_type"] != "mine")


def test_facts_of_a_model() -> None:
    stated = model_summary("m", {"model_type": "llama", "parameters": 7e9, "torch_dtype": "bfloat16"}, stated=True)
    assert stated is not None and (stated.hidden_size, stated.parameters, stated.dtype) == (None, 7 * 10**9, "bfloat16")
    assert stated.model_type == "llama" and model_summary("m", []) is None
    inner = model_summary("m", {"parameters": 1e18, "text_config": {"dtype": "float16"}})
    assert inner is not None and (inner.parameters, inner.dtype) == (None, "float16")


# --- placeholders -----------------------------------------------------------------------------------------------------


def test_values_that_something_fills_in() -> None:
    def plain(text: str, form: Any = "json") -> Any:
        return plain_or_unknown(load_as(SourceText(f"a.{form}", text), form))

    assert plain('{"a": "$X", "b": ["<NAME>", 1], "c": "{{ d }}", "e": "x"}') == {
        "a": UNKNOWN,
        "b": [UNKNOWN, 1],
        "c": UNKNOWN,
        "e": "x",
    }
    assert plain('{"a": GBSIZE,\n"b": 1}') == {"a": UNKNOWN, "b": 1} and plain('{"a": ab\n}') == {"a": "ab"}
    assert plain('{"a": AB\n}') == {"a": "AB"}, "two letters"
    assert plain("a: GBSIZE\n", "yaml") == {"a": "GBSIZE"} and plain("a: <x>\n", "yaml") == {"a": "<x>"}
    assert plain_or_unknown(None) is None


def test_templates() -> None:
    assert is_template(file("deepspeed", "{}")) is False
    named = {
        name: is_template(type(file("deepspeed", "{}"))(name, "other", SourceText(name, "")))
        for name in ("a/Template.json", "template/a.json", "b\\my_template.yaml")
    }
    assert list(named.values()) == [True, False, True]
    document = load_as(SourceText("a.json", '{"a": 1,\n "stage": {{ stage }},\n "b": 2}'), "json")
    written = document.source.text
    assert stops_at_placeholder(document, written.index("{{ ")) and stops_at_placeholder(
        document, written.index("stage }}")
    )
    assert not stops_at_placeholder(document, written.index('"b"')) and not stops_at_placeholder(document, 0)
    assert has_placeholders(load_as(SourceText("a.json", '{"a": ${X}\n}'), "json"))
    assert not has_placeholders(load_as(SourceText("a.json", '{"a": "${X}"}'), "json"))
    assert not has_placeholders(load_as(SourceText("a.yaml", "a: ${X}\n"), "yaml"))


def test_a_script_that_opens_the_config() -> None:
    given = {"deepspeed_config": Setting("ds.json", CALL)}
    for reader, opened, told in (
        ("deepspeed", {"deepspeed_config"}, True),
        ("deepspeed", {"other"}, False),
        ("deepspeed", {"deepspeed"}, False),
        ("transformers", {"deepspeed_config"}, False),
        (None, {"deepspeed_config"}, True),
    ):
        script = Script(TRAIN, reader, opened=frozenset(opened))  # type: ignore[arg-type]
        assert opened_by_script(Run("a", script=script, arguments=given)) is told
    assert not opened_by_script(Run("a", arguments=given))


# --- where runs are looked for ----------------------------------------------------------------------------------------

DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}'
LINE = "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n"


def repository(folder: Path, *, git: bool = True) -> Path:
    (folder / "conf").mkdir(parents=True)
    if git:
        (folder / ".git").mkdir()
    (folder / "conf" / "ds.json").write_text(DS)
    (folder / "run.sh").write_text(LINE.replace("ds.json", "conf/ds.json"))
    (folder / "train.py").write_text("import deepspeed\ndeepspeed.initialize()\n")
    return folder


def names(*paths: Path, scripts: bool = False) -> list[str]:
    return sorted(one.name.rpartition("/")[2] for one in find_runs(paths, Files(), scripts=scripts)[0])


def test_files_of_several_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = repository(tmp_path / "one"), repository(tmp_path / "two")
    assert names(one / "conf/ds.json", two / "conf/ds.json") == ["run.sh:1", "run.sh:1"]
    assert names(one / "conf/ds.json") == names(one) == ["run.sh:1"]
    assert names(one / "conf", two / "conf/ds.json") == ["ds.json", "run.sh:1"], "a folder stands for itself"


def test_a_file_of_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(tmp_path / "one", git=False)
    monkeypatch.chdir(tmp_path)
    assert names(folder / "conf/ds.json") == ["run.sh:1"], "below the current folder"
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    assert names(folder / "conf/ds.json") == ["ds.json"], "its own folder alone"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert names(folder / "conf/ds.json") == ["ds.json"], "a home is no project"


def test_scripts_count_where_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "go.py").write_text(f"import subprocess\nsubprocess.run({LINE.split()})\n")
    (tmp_path / "ds.json").write_text(DS)
    assert names(tmp_path) == ["ds.json"] and names(tmp_path, scripts=True) == ["go.py:2"]


def test_what_was_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {
        "bad.json": '{"zero_optimization": {',
        "a.sh": "ls\n",
        "b.py": "import deepspeed\n",
        "model.json": '{"model_type": "llama", "hidden_size": 1}',
        "other.yaml": "a: 1\n",
        "ds.json": DS,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    paths = [tmp_path / name for name in texts]
    files = Files()
    runs, _ = find_runs(paths, files, root=tmp_path, scripts=True)
    found = unchecked_files(files, runs, paths, [], [])
    assert {one.file: (one.why, one.named) for one in found} == {
        "bad.json": ("not-read", True),
        "a.sh": ("no-launch-line", True),
        "b.py": ("not-started", True),
        "model.json": ("not-checked-kind", True),
        "other.yaml": ("not-recognised", True),
    }
    assert [(one.file, one.named) for one in without_unknown(found)] == [("bad.json", False)]
    files = Files()
    runs, _ = find_runs([tmp_path], files, root=tmp_path)
    assert [(one.file, one.named) for one in unchecked_files(files, runs, [], [tmp_path], [])] == [("bad.json", False)]
    assert unchecked_files(files, [], [], [tmp_path / "sub"], []) == ()
    assert [one.file for one in unchecked_files(files, [], [], [tmp_path], [])] == ["bad.json"]


def test_a_file_that_a_job_makes_before(tmp_path: Path) -> None:
    def made(text: str) -> bool:
        path = tmp_path / "run.sh"
        path.write_text(text)
        source = SourceText("run.sh", text)
        kind: Any = "launch"
        script = SourceFile("run.sh", kind, source, None, path)
        line = read_launch_lines(source).lines[-1]
        return created_before_launch(Run("a", launch=line, launch_file=script), "conf/ds.json")

    assert not made(LINE) and not made(f"ls ds.json\n{LINE}") and not made(f"python x.py --input ds.json\n{LINE}")
    assert made(f"cp a ds.json\n{LINE}") and made(f"python x.py --output conf/ds.json\n{LINE}")
    assert made(f"python x.py -o ds.json\n{LINE}") and not made(f"python x.py -o ds.json.bak\n{LINE}")
    (tmp_path / "make.py").write_text("json.dump({}, open('ds.json', 'w'))\n")
    assert made(LINE)
    (tmp_path / "make.py").write_text("print('ds.json')\n")
    assert not made(LINE)


def test_files_of_a_kind(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.json").write_text("{}")
    pointing = tmp_path / "sub" / "run.sh"
    assert has_similar_files(pointing, "conf/ds.json") and has_similar_files(pointing, "./conf/ds.json")
    assert not has_similar_files(pointing, "conf/ds.yaml") and not has_similar_files(pointing, "other/ds.json")
    assert not has_similar_files(pointing, "ds.json") and not has_similar_files(pointing, "conf/ds")


# --- runs of a spec ---------------------------------------------------------------------------------------------------

TRAINS = f"{HF}Trainer(args=TrainingArguments(output_dir='o', learning_rate=0.5, max_steps=4)).train()\n"


def specified(folder: Path, keys: str, **files: str) -> Run:
    for name, text in {"spec.yaml": f"version: 1\nruns:\n  a:\n{keys}", **files}.items():
        (folder / name.replace("__", ".")).write_text(text)
    (run,) = runs_from_spec(folder / "spec.yaml")
    return run


def test_the_script_of_a_spec_states_arguments(tmp_path: Path) -> None:
    keys = "    consumer: transformers\n    script: train.py\n"
    alone = specified(tmp_path, keys, train__py=TRAINS)
    assert alone.script is not None and alone.arguments["learning_rate"].value == 0.5
    beside = specified(tmp_path, f"{keys}    recipe: r.yaml\n", r__yaml="output_dir: o\nsave_steps: 1\nmax_steps: 2\n")
    assert beside.recipe is not None and "learning_rate" not in beside.arguments
    none = specified(tmp_path, keys, train__py="print(1)\n")
    assert none.script is not None and dict(none.arguments) == {}
    elsewhere = specified(tmp_path, "    consumer: transformers\n    script: other.py\n")
    assert elsewhere.script is None and elsewhere.entry_point == tmp_path.resolve() / "other.py"


@pytest.mark.parametrize(
    ("consumer", "route", "reader"),
    [
        ("transformers", "trainer", "hf"),
        ("trl", "trainer", "trl"),
        ("deepspeed", "engine", None),
        ("accelerate", "accelerate", None),
        (None, "trainer", None),
    ],
)
def test_how_a_spec_hands_its_config_on(consumer: str | None, route: str, reader: str | None, tmp_path: Path) -> None:
    said = f"    consumer: {consumer}\n" if consumer else ""
    run = specified(tmp_path, f"{said}    deepspeed: ds.json\n", ds__json=DS)
    assert (run.consumer, run.deepspeed_route, run.recipe_reader) == (consumer, route, reader)
    assert (run.reader_evidence is not None) is (consumer is not None)
    lacking = specified(tmp_path, f"{said}    deepspeed: no.json\n")
    assert lacking.deepspeed is None and [one.note for one in lacking.missing] == ["no.json"]


def test_arguments_and_lines_of_a_spec(tmp_path: Path) -> None:
    run = specified(
        tmp_path, "    consumer: trl\n    arguments: [--beta, 0.2, --flag, --x=1]\n    versions: {trl: 1.0}\n"
    )
    assert {name: one.value for name, one in run.arguments.items()} == {"beta": "0.2", "flag": True, "x": "1"}
    assert run.versions == {"trl": "1.0"}
    given = "--deepspeed_config ds.json"
    text = f"ls\ndeepspeed --num_gpus 2 a.py {given}\ndeepspeed --num_gpus 4 b.py \\\n  {given}\n"
    for place, gpus in (("run.sh:2", "2"), ("run.sh:3", "4"), ("run.sh:4", "4"), ("run.sh", None), ("run.sh:1", None)):
        run = specified(tmp_path, f"    launch: '{place}'\n    arguments: [--y]\n", run__sh=text, ds__json=DS)
        found = run.flags.get("num_gpus")
        assert (found.value if found is not None else None) == gpus, place
        assert list(run.arguments) == ["y"] and run.name == "a"
    only = specified(tmp_path, "    launch: run.sh\n", run__sh=LINE)
    assert only.flags["num_gpus"].value == "2" and only.arguments["deepspeed_config"].value == "ds.json"


@pytest.mark.parametrize(
    ("model", "hidden", "missing"),
    [
        ("m.json", 48, False),
        ("{parameters: 7e9, hidden_size: 64}", 64, False),
        ("nowhere.json", None, True),
        ("''", None, False),
        ("[1]", None, False),
    ],
)
def test_the_model_of_a_spec(model: str, hidden: int | None, missing: bool, tmp_path: Path) -> None:
    config = '{"model_type": "llama", "hidden_size": 48}'
    run = specified(tmp_path, f"    consumer: trl\n    model: {model}\n", m__json=config)
    assert (run.model.hidden_size if run.model is not None else None) == hidden
    assert bool(run.missing) is missing
    if model.startswith("{"):
        assert run.model is not None and run.model.parameters == 7 * 10**9
