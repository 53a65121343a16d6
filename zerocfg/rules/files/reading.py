"""ZC0xx: files that cannot be read, or that say something else than they seem to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS
from zerocfg.rules.proof import crashes, shows
from zerocfg.rules.repairs import strict_json
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.templates import stops_at_blank, to_be_filled
from zerocfg.source.edit import Edit, delete_duplicate
from zerocfg.source.node import Mapping, Path, Problem, Scalar, dotted, plain, walk

_UNREADABLE = frozenset(("unreadable", "encoding", "too-large", "too-deep", "alias-cycle"))
_TOLD_ELSEWHERE = frozenset(("duplicate-key", "hjson-only", "readers-differ", "non-string-key", "empty"))
_SCIENTIFIC = re.compile(r"[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+")
_WORDS = frozenset(("no", "off", "yes", "on"))

_LINE = "accelerate launch --config_file accelerate.yaml train.py\n"
_GOOD_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n'
_GOOD_YAML = (
    "distributed_type: DEEPSPEED\nnum_processes: 2\n"
    "deepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 4\n"
)


def _configs(run: Run) -> list[SourceFile]:
    found = (run.accelerate, run.deepspeed, run.recipe, run.neighbour, run.spec)
    return [file for file in found if file is not None]


def _problems(run: Run, kinds: frozenset[str] | set[str]) -> Iterator[tuple[SourceFile, Problem]]:
    for file in _configs(run):
        if file.document is not None:
            for problem in file.document.problems:
                if problem.kind in kinds:
                    yield file, problem


def _where(file: SourceFile, problem: Problem) -> Location:
    return Location(file, problem.path, span=problem.span)


@rule(
    "ZC001",
    "unreadable-file",
    Severity.ERROR,
    bad=Example(
        {"accelerate.yaml": "# 8 GPUs, caf\udce9 node\n" + _GOOD_YAML},
        note="\\udce9 stands for the Latin-1 byte 0xe9",
    ).finds("error", "accelerate.yaml", 1),
    good=Example({"accelerate.yaml": "# 8 GPUs, café node\n" + _GOOD_YAML}),
    proof=crashes("read", "can't decode byte 0xe9"),
)
def unreadable_file(run: Run) -> Iterator[Finding]:
    """A config file cannot be read at all.

    The file is missing, a folder, not readable, not UTF-8 text, larger or nested deeper than any config has reason to
    be, or (YAML) holds an alias that contains itself.

    What happens: whoever reads it stops there, for Latin-1 text with `UnicodeDecodeError: 'utf-8' codec can't decode
    byte 0xe9`.
    """
    for file, problem in _problems(run, _UNREADABLE):
        yield Finding(_where(file, problem), f"{file.name} cannot be read: {problem.message}")


@rule(
    "ZC002",
    "syntax-error",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _GOOD_YAML.replace("  zero_stage", "\tzero_stage")}).finds(
        "error", "accelerate.yaml:"
    ),
    good=Example({"accelerate.yaml": _GOOD_YAML}),
    proof=crashes("read", "found character '.t' that cannot start any token"),
)
def syntax_error(run: Run) -> Iterator[Finding]:
    """The file is not valid YAML or JSON.

    A tab, a lost bracket or a second document is found when the job has its accelerators, not before.

    What happens: accelerate reads YAML with PyYAML's safe loader; DeepSpeed reads JSON with hjson, which forgives
    comments and trailing commas; accelerate and transformers read the same JSON strictly. A file that its readers
    refuse stops every rank, usually after the job has been queued and has its GPUs.
    """
    for file in _configs(run):
        if file.document is None:
            continue
        for problem in file.document.problems:
            if problem.fatal and problem.kind not in _UNREADABLE and problem.kind not in _TOLD_ELSEWHERE:
                if run.launch is None and run.spec is None and stops_at_blank(file.document, problem.span.start):
                    continue  # a template; what it is shows when it is filled in
                kind = "JSON" if file.document.format == "json" else "YAML"
                yield Finding(
                    _where(file, problem), f"{file.name} is not valid {kind}: {problem.why or problem.message}"
                )


@rule(
    "ZC003",
    "duplicate-key",
    Severity.ERROR,
    bad=Example({"ds.json": _GOOD_DS.replace('"stage": 2', '"stage": 1, "stage": 2')}, consumer="deepspeed").finds(
        "error", 'ds.json:1:73: "stage"', also=('ds.json: "stage"',)
    ),
    good=(Example({"ds.json": _GOOD_DS}, consumer="deepspeed"), Example({"accelerate.yaml": _GOOD_YAML})),
    proof=crashes("read", "Duplicate keys in DeepSpeed config"),
    fixable=True,
)
def duplicate_key(run: Run) -> Iterator[Finding]:
    """A key is written twice in the same mapping.

    Who reads the first one believes something else than what runs.

    What happens: in YAML, and in JSON read by accelerate or transformers, the last one wins without a word. DeepSpeed
    itself refuses the file: `ValueError: Duplicate keys in DeepSpeed config`.

    Fix: removes the earlier one, which nobody reads. Not a safe one for a file that DeepSpeed reads itself, where
    neither counts yet.

    When to ignore: never; `<<: *anchor` is the way to overrule a part of a mapping.
    """
    for file, problem in _problems(run, {"duplicate-key"}):
        if file is run.neighbour:
            continue  # some of the frameworks refuse it, some take the last
        related = (
            [Location(file, problem.path, span=problem.related, label="first written here")] if problem.related else []
        )
        severity = None
        if file.document is not None and file.document.format == "json":
            what = "DeepSpeed refuses the file, accelerate and transformers silently take this one"
        elif _alike(file, problem.path):
            what, severity = "both say the same", Severity.NOTE
        else:
            what = "this one silently replaces the first"
        yield Finding(
            _where(file, problem),
            f"'{dotted(problem.path)}' is written twice; {what}",
            "remove one of the two",
            related,
            _without_earlier(run, file, problem),
            severity,
        )


def _alike(file: SourceFile, path: Path) -> bool:
    """Whether a key that is written twice has the same value each time."""
    holder = file.document.get(path[:-1]) if file.document is not None else None
    if not isinstance(holder, Mapping):
        return False
    values = [plain(entry.value) for entry in holder.entries if entry.key == path[-1]]
    return len(values) > 1 and all(value == values[0] for value in values)


def _without_earlier(run: Run, file: SourceFile, problem: Problem) -> Fix | None:
    """The one that counts is left. Both may be the same, then nothing is chosen either."""
    document, earlier = file.document, problem.related
    if document is None or earlier is None or document.root is None:
        return None
    try:
        edits = delete_duplicate(document, problem.path, earlier)
    except ValueError:
        return None
    judged = document.format == "yaml" or run.consumer in (*TRAINERS, "accelerate")
    return Fix("remove the earlier one", tuple((file, edit) for edit in edits), safe=judged)


@rule(
    "ZC004",
    "json-not-strict",
    Severity.ERROR,
    bad=Example(
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1, // per GPU\n "zero_optimization": {"stage": 2}}\n'},
        consumer="transformers",
    ).finds("error", "ds.json: // per GPU"),
    good=Example({"ds.json": _GOOD_DS}, consumer="transformers"),
    proof=crashes("read", "Expecting property name"),
    fixable=True,
    references=("accelerate/utils/deepspeed.py@1.15.0", "DeepSpeed#653"),
)
def json_not_strict(run: Run) -> Iterator[Finding]:
    """The DeepSpeed JSON holds comments, trailing commas or other things that strict JSON does not have.

    The same file works in one project and stops the next one, whose library reads it in another way.

    What happens: DeepSpeed reads its config with hjson and accepts them. accelerate and transformers open the same
    file with Python's json and stop: `json.decoder.JSONDecodeError`. A file that only DeepSpeed reads is fine.

    Fix: removes comments and trailing commas, and puts double quotes around keys and texts. Removed comments are lost.
    """
    if run.consumer == "deepspeed":
        return
    severity = None if run.consumer else Severity.WARNING
    for file in _configs(run):
        if file.document is None or file.document.format != "json":
            continue
        found = [problem for problem in file.document.problems if problem.kind == "hjson-only"]
        if found and not to_be_filled(file.document):
            more = f" ({len(found)} such places)" if len(found) > 1 else ""
            yield Finding(
                _where(file, found[0]),
                f"{file.name} is not strict JSON{more}: {found[0].message}",
                "write strict JSON, unless DeepSpeed alone reads this file",
                fix=strict_json(file, found),
                severity=severity,
            )


_DEEPEST_READ = 2
"""`deepspeed_config.gradient_clipping`: accelerate has no sections within its sections, and reads nothing there."""


@rule(
    "ZC005",
    "number-read-as-string",
    Severity.WARNING,
    bad=Example({"accelerate.yaml": _GOOD_YAML + "  reduce_bucket_size: 5e8\n"}).finds(
        "warning", "accelerate.yaml: 5e8", "5e8", "5e8", "1.1", "5.0e+8"
    ),
    good=Example({"accelerate.yaml": _GOOD_YAML + "  gradient_clipping: 1.0\n"}),
    proof=shows(
        "read",
        {"read.deepspeed_config.reduce_bucket_size": ("5e8", "<absent>")},
        extent="the value as the reader of the file hands it on, a text.",
    ),
    fixable=True,
)
def number_read_as_string(run: Run) -> Iterator[Finding]:
    """A number in scientific notation without a dot and a sign is a string in YAML 1.1.

    `learning_rate: 5e-5` is the most written line of all recipes, and it is a text.

    What happens: PyYAML, which accelerate and transformers use, follows YAML 1.1, where a float needs a dot
    and, if it has an exponent, a signed one: `5e8`, `1e-5` and `5.0e8` are strings, `5.0e+8` and `1.0e-5` are
    numbers. A recipe read by HfArgumentParser keeps the string, and training stops with `TypeError: '<=' not
    supported between instances of 'float' and 'str'`. TrlParser converts it.

    Fix: writes the same number with a dot and a sign. In a recipe only where HfArgumentParser is known to read it and
    the argument is a number: what another parser makes of the text, nobody knows.

    Nothing is said of numbers in a section that accelerate ignores as a whole (ZC103).

    When to ignore: your own code converts the value.
    """
    for file in (run.accelerate, run.recipe):
        if file is None or file.document is None or file.document.format != "yaml" or file.document.root is None:
            continue
        if file is run.recipe and run.recipe_reader == "trl":
            continue
        for path, node, _ in walk(file.document.root):
            if not isinstance(node, Scalar) or node.quoted or not isinstance(node.value, str):
                continue
            if not _SCIENTIFIC.fullmatch(node.raw) or (file is run.accelerate and len(path) > _DEEPEST_READ):
                continue
            severity = None
            help_text = f"write {_with_dot(node.raw)}"
            certain = True
            if file is run.recipe:
                certain = run.recipe_reader == "hf" and _numeric(path)
                severity = Severity.ERROR if certain else Severity.NOTE
            yield Finding(
                Location(file, path, "value"),
                f"`{dotted(path)}: {node.raw}` is read as the string '{node.raw}', not as a number "
                "(YAML 1.1 wants a dot and a signed exponent)",
                help_text,
                fix=Fix(help_text, ((file, Edit(node.span, _with_dot(node.raw))),)) if certain else None,
                severity=severity,
            )


def _with_dot(raw: str) -> str:
    mantissa, _, exponent = raw.lower().partition("e")
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    mantissa = f"{mantissa}0" if mantissa.endswith(".") else mantissa
    return f"{mantissa}e{exponent if exponent[0] in '+-' else '+' + exponent}"


def _numeric(path: Path) -> bool:
    from zerocfg.catalog.schema import load_schema

    key = load_schema("training-arguments").root.names.get(str(path[0])) if len(path) == 1 else None
    return key is not None and any(branch.get("type") in ("number", "integer") for branch in key.scalars)


@rule(
    "ZC006",
    "word-read-as-boolean",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": "distributed_type: DEEPSPEED\nmixed_precision: no\nnum_processes: 2\n"}).finds(
        "error", "accelerate.yaml: no", "1.1"
    ),
    good=Example({"accelerate.yaml": "distributed_type: DEEPSPEED\nmixed_precision: 'no'\nnum_processes: 2\n"}),
    proof=crashes("launch", "'bool' object has no attribute 'lower'"),
    fixable=True,
)
def word_read_as_boolean(run: Run) -> Iterator[Finding]:
    """An unquoted yes, no, on or off is true or false in YAML 1.1, where a word was meant.

    `no` is a word of accelerate's and of the Trainer's own, and the one that cannot be written without quotes.

    What happens: `mixed_precision: no` is `False`, and the launcher stops with `AttributeError: 'bool' object
    has no attribute 'lower'`; before accelerate 0.34.0 it takes `False` for the word. `distributed_type: NO` is
    `False` too and loses its default of one process. `eval_strategy: no` in a recipe is refused: `False is not a
    valid IntervalStrategy`.

    Fix: puts the word in quotes.
    """
    from zerocfg.catalog.schema import load_schema

    for file, name in ((run.accelerate, "accelerate"), (run.recipe, "training-arguments")):
        if file is None or file.document is None or file.document.format != "yaml" or file.document.root is None:
            continue
        schema = load_schema(name)
        for path, node, _ in walk(file.document.root):
            if not isinstance(node, Scalar) or node.quoted or not isinstance(node.value, bool):
                continue
            if node.raw.lower() not in _WORDS or any(isinstance(part, int) for part in path):
                continue
            key = schema.find(tuple(str(part) for part in path))
            if key is None or any(_takes_bool(branch) for branch in key.scalars):
                continue
            word = _meant(node.raw, key.scalars)
            stays = _false_stays_since(run, path) if file is run.accelerate and node.value is False else ""
            if word is None or stays is None:
                continue
            yield Finding(
                Location(file, path, "value"),
                f"`{dotted(path)}: {node.raw}` is read as {str(node.value).lower()}, "
                f"not as the word '{node.raw}' (YAML 1.1)",
                f"quote it: '{word}'",
                fix=Fix("quote the word", ((file, Edit(node.span, f"'{word}'")),)),
                versions=f"accelerate>={stays}" if stays else "",
            )


def _false_stays_since(run: Run, path: Path) -> str | None:
    from zerocfg.run.admitted import admitted_of  # few files have such a word

    return admitted_of(run, "accelerate").false_stays_since(str(path[0])) if len(path) == 1 else ""


def _takes_bool(branch: dict[str, object]) -> bool:
    kinds = branch.get("type")
    choices = branch.get("enum")
    if isinstance(choices, list):
        return True in choices or False in choices
    return kinds == "boolean" or kinds is None or (isinstance(kinds, list) and "boolean" in kinds)


def _meant(raw: str, branches: list[dict[str, object]]) -> str | None:
    """The spelling that the key takes for a word such as NO; None when it takes no such word."""
    for branch in branches:
        choices = branch.get("enum")
        if not isinstance(choices, list):
            continue
        for choice in choices:
            if isinstance(choice, str) and choice.lower() == raw.lower():
                return choice
    return None


@rule(
    "ZC007",
    "number-in-another-base",
    Severity.WARNING,
    bad=Example({"accelerate.yaml": _GOOD_YAML + "main_process_port: 024500\n"}).finds(
        "warning", "accelerate.yaml: 024500", "024500", 10560
    ),
    good=Example({"accelerate.yaml": _GOOD_YAML + "main_process_port: 24500\n"}),
    proof=shows("read", {"read.main_process_port": (10560, 24500)}),
    fixable=True,
)
def number_in_another_base(run: Run) -> Iterator[Finding]:
    """A number with a leading zero is octal in YAML 1.1, and one with colons counts in sixties.

    Another number than the written one reaches the job, and it is a good number, so that nothing stops.

    What happens: `010` is 8 and `1:30` is 90.

    Fix: drops the leading zeros; puts what has colons in quotes.

    When to ignore: octal is what you mean; then write `0o10` in quotes, or the decimal number.
    """
    for file in (run.accelerate, run.recipe):
        if file is None or file.document is None or file.document.format != "yaml" or file.document.root is None:
            continue
        for path, node, _ in walk(file.document.root):
            if not isinstance(node, Scalar) or node.quoted or not isinstance(node.value, (int, float)):
                continue
            digits = node.raw.lstrip("+-")
            if isinstance(node.value, bool) or not digits[:1].isdigit():
                continue
            octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit() and isinstance(node.value, int)
            if (octal and node.value != 0) or ":" in digits:
                yield Finding(
                    Location(file, path, "value"),
                    f"`{dotted(path)}: {node.raw}` is read as {node.value}"
                    + (" (octal)" if octal else " (base sixty)"),
                    "write the number without the leading zero, or quote it if it is a word",
                    fix=_decimal(file, node, octal),
                )


@rule(
    "ZC008",
    "not-a-mapping",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": "- distributed_type: DEEPSPEED\n  num_processes: 2\n", "train.sh": _LINE}).finds(
        "error", "accelerate.yaml", also=("train.sh: accelerate launch --config_file accelerate.yaml train.py",)
    ),
    good=Example({"accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\n", "train.sh": _LINE}),
    proof=crashes("launch", "AttributeError: 'list' object has no attribute 'get'"),
)
def not_a_mapping(run: Run) -> Iterator[Finding]:
    """The file is empty, or its top level is not a mapping of keys to values.

    A script that writes its config with `>` and dies in between leaves such a file.

    What happens: accelerate stops with a bare `AttributeError` that names neither the file nor the cause.
    """
    for file in (run.accelerate, run.deepspeed, run.recipe):
        if file is None or file.document is None or any(problem.fatal for problem in file.document.problems):
            continue
        data = file.document.data()
        if not isinstance(data, dict):
            what = "is empty" if data is None else "has no keys at its top level"
            # An empty file looks like no kind of config: whoever names it is shown as well.
            named = [Location(run.launch_file, span=run.launch.span)] if run.launch_file and run.launch else []
            yield Finding(Location(file), f"{file.name} {what}; a mapping of keys to values is expected", related=named)


def _decimal(file: SourceFile, node: Scalar, octal: bool) -> Fix:
    if octal:
        sign = node.raw[0] if node.raw[0] in "+-" else ""
        return Fix("drop the zeros", ((file, Edit(node.span, sign + node.raw.lstrip("+-").lstrip("0"))),), safe=False)
    return Fix("quote it", ((file, Edit(node.span, f'"{node.raw}"')),), safe=False)


RULES = (
    unreadable_file,
    syntax_error,
    duplicate_key,
    json_not_strict,
    number_read_as_string,
    word_read_as_boolean,
    number_in_another_base,
    not_a_mapping,
)
