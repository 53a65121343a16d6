"""ZC0xx: texts of a config that its reader takes for something else, and nobody replaces."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import anchor
from zerocfg.rules.issues import PYTHON_WORDS, issues, python_word
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.model import Run
from zerocfg.run.templates import blank, is_template, placeholder, to_be_filled
from zerocfg.source.edit import Edit
from zerocfg.source.node import Path, Scalar, dotted, walk
from zerocfg.source.text import Span

_LINE = "accelerate launch --config_file accelerate.yaml train.py\n"


@rule(
    "ZC009",
    "python-word-in-json",
    Severity.ERROR,
    bad=(
        Example(
            {
                "ds.json": '{\n  "train_micro_batch_size_per_gpu": 1,\n  "prescale_gradients": False, '
                '"gradient_clipping": 0.5\n}\n'
            },
            consumer="deepspeed",
        ).finds("error", "ds.json: False", "0.5"),
        Example(
            {
                "ds.json": '{\n  "train_micro_batch_size_per_gpu": 1,\n  "zero_optimization": {\n    "stage": 2,\n'
                '    "overlap_comm": True,\n    "reduce_bucket_size": 1000\n  }\n}\n'
            },
            consumer="deepspeed",
            proof=crashes("parse", "Input should be a valid boolean"),
        ).finds("error", "ds.json: True"),
    ),
    good=Example(
        {
            "ds.json": '{\n  "train_micro_batch_size_per_gpu": 1,\n  "prescale_gradients": false, '
            '"gradient_clipping": 0.5\n}\n'
        },
        consumer="deepspeed",
    ),
    proof=shows("parse", {"engine.prescale_gradients": ('False, "gradient_clipping": 0.5', False)}),
    fixable=True,
    references=("deepspeed/runtime/config.py@0.19.8",),
)
def python_word_in_json(run: Run) -> Iterator[Finding]:
    """True, False or None, as Python spells them, in a JSON that DeepSpeed reads.

    The word becomes a text, takes the rest of its line with it, and every key that stands there is gone.

    What happens: hjson, which DeepSpeed reads with, knows true, false and null in small letters only. Any other word
    without quotes runs to the end of the line, comma included: `"prescale_gradients": False,` is the text `False,`,
    which counts as true, or stops a typed section with `Input should be a valid boolean`.

    Fix: writes the word in small letters (`null` for None).

    When to ignore: never; other readers refuse the file.
    """
    file = run.deepspeed
    root = file.document.root if file is not None and file.document is not None else None
    if file is None or root is None:
        return
    for path, node, _ in walk(root):
        word = python_word(run, file, node)
        if word is None or not isinstance(node, Scalar):
            continue
        right = PYTHON_WORDS[word]
        span = Span(node.span.start, node.span.start + len(word))
        swallowed = node.value != word
        harmless = not swallowed and not any(issue.path == path for _, _, issue in issues(run, "type", "raw-type"))
        yield Finding(
            Location(file, path, "value", span=span),
            f"`{word}` is no word of JSON: `{dotted(path)}` is the text {show(node.value)}",
            f"write {right}",
            fix=Fix(f"write {right}", ((file, Edit(span, right)),)),
            severity=Severity.NOTE if harmless else None,
        )


@rule(
    "ZC012",
    "number-that-json-lacks",
    Severity.ERROR,
    bad=(
        Example(
            {"ds.json": '{"train_micro_batch_size_per_gpu": 1,\n "gradient_clipping": Infinity\n}\n'},
            consumer="deepspeed",
        ).finds("error", "ds.json: Infinity"),
        Example(
            {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1e999}\n'},
            consumer="deepspeed",
            proof=crashes("read", "cannot convert float infinity to integer"),
        ).finds("error", "ds.json: 1e999"),
    ),
    good=Example(
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1,\n "gradient_clipping": 0\n}\n'}, consumer="deepspeed"
    ),
    proof=crashes("step", "'>' not supported between instances of 'str' and 'float'"),
    references=("deepspeed/runtime/config.py@0.19.8",),
)
def number_that_json_lacks(run: Run) -> Iterator[Finding]:
    """NaN, Infinity or a number too large for a float in a JSON.

    JSON has no such numbers. Python's reader takes them, DeepSpeed's does not, so that one file holds two values.

    What happens: hjson reads `NaN` and `Infinity` as texts, which take the rest of their line with them, and stops at
    1e999 with `OverflowError: cannot convert float infinity to integer`. A text in the place of a number breaks at the
    first step: `TypeError: '>' not supported between instances of 'str' and 'float'`.

    When to ignore: only a reader with Python's json sees the file.
    """
    file = run.deepspeed
    problems = file.document.problems if file is not None and file.document is not None else []
    for problem in problems:
        if file is None or problem.kind != "readers-differ":
            continue
        severity = None if run.consumer == "deepspeed" else Severity.NOTE if run.consumer else Severity.WARNING
        yield Finding(
            Location(file, problem.path, span=problem.span),
            f"`{dotted(problem.path)}`: {problem.message}",
            "write a number that JSON has",
            severity=severity,
        )


@rule(
    "ZC013",
    "placeholder-not-filled",
    Severity.ERROR,
    bad=(
        Example(
            {
                "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 4\nnum_machines: 2\nmachine_rank: 1\n"
                "main_process_ip: $MASTER_ADDR\nmain_process_port: 29500\n",
                "train.sh": _LINE,
            }
        ).finds("error", "accelerate.yaml: $MASTER_ADDR"),
        Example(
            {
                "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n"
                "  deepspeed_config_file: ~/ds.json\n",
                "train.sh": _LINE,
            },
            consumer="accelerate",
            proof=crashes("arguments", "Expected a string path to an existing deepspeed config"),
        ).finds("error", "accelerate.yaml: ~/ds.json"),
    ),
    good=Example(
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 4\nnum_machines: 2\nmachine_rank: 1\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n",
            "train.sh": _LINE,
        }
    ),
    proof=shows("launch", {"launch.rdzv_endpoint": ("$MASTER_ADDR:29500", "10.0.0.1:29500")}),
    references=("accelerate/commands/config/config_args.py@1.15.0",),
)
def placeholder_not_filled(run: Run) -> Iterator[Finding]:
    """A config holds `$NAME`, `${NAME}`, `{{ name }}`, `<NAME>` or `~/`, which only a shell or a template fills in.

    The text is taken as it stands: machines look for each other at a host called `$MASTER_ADDR`, and wait.

    What happens: neither accelerate nor DeepSpeed replaces variables in their files. A number becomes
    `invalid literal for int()`, a path `Expected a string path to an existing deepspeed config`, and a folder of NVMe
    files is made under the name `~`.

    A bare word in capitals (`"train_batch_size": GBSIZE,`) is told where a launch line names the file. A file that no
    launch line names is left alone where it is called a template, or is a JSON only after something has filled it in
    (`"stage": ${stage}`).

    When to ignore: the file is a template, and something (`envsubst`, Helm, a script) fills it before the job starts.
    """
    for file in (run.accelerate, run.deepspeed):
        document = file.document if file is not None else None
        if file is None or document is None or document.root is None or not document.editable:
            continue
        if run.launch is None and (is_template(file) or to_be_filled(document)):
            continue
        for path, node, entry in walk(document.root):
            if entry is None or not isinstance(node, Scalar) or not isinstance(node.value, str):
                continue
            # Where nobody starts a job with the file, a bare word in capitals is left to whoever fills it in.
            name = blank(node, document) if run.launch else placeholder(node.value)
            name = name or _home_folder(path, node.value)
            if name is not None and not str(path[-1]).startswith(("_", "//")):
                yield Finding(
                    Location(file, path, "value"),
                    f"`{dotted(path)}`: nothing replaces `{name}` in this file",
                    "write the value, or give it as an option of the launch line, where the shell fills it in",
                    severity=None if run.launch else Severity.WARNING,
                )


def _home_folder(path: Path, value: str) -> str | None:
    key = str(path[-1])
    return "~/" if value.startswith("~/") and key.endswith(("_path", "_file", "_hostfile", "_folder")) else None


_YAML = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: 2\n"
_KINDS = {
    "accelerate": "a config of accelerate",
    "deepspeed": "a DeepSpeed config",
    "recipe": "a recipe of training arguments",
    "neighbour": "a recipe of a training framework",
}


@rule(
    "ZC014",
    "file-of-another-kind",
    Severity.ERROR,
    bad=Example(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n',
            "train.sh": "accelerate launch --config_file ds.json train.py\n",
        },
        consumer="accelerate",
    ).finds("error", "train.sh: --config_file ds.json", also=("ds.json",)),
    good=Example(
        {
            "accelerate.yaml": _YAML,
            "train.sh": _LINE,
        },
        consumer="accelerate",
    ),
    proof=crashes("launch", "A `distributed_type` must be specified in the config file"),
    references=("transformers/integrations/deepspeed.py@5.23.0", "accelerate/commands/config/config_args.py@1.15.0"),
)
def file_of_another_kind(run: Run) -> Iterator[Finding]:
    """A config is given where a config of another program belongs.

    Both are called "the config", and the option that takes the one takes the path of the other without a word.

    What happens: accelerate's launcher looks for `distributed_type` in the file and stops, or names all its keys as
    unknown. The Trainer and accelerate read what `--deepspeed` names as JSON: `Expecting value: line 1 column 1
    (char 0)`. DeepSpeed itself reads it, finds none of its keys and misses the batch size. Nothing else is said of the
    file.
    """
    for one in run.mistaken:
        location, related = anchor(run, [one.named])
        by = f"`{one.named.note}`" if one.named.kind == "flag" else "this key"
        advice = {
            "accelerate": "give it to `accelerate launch --config_file`",
            "deepspeed": "give it to `--deepspeed_config_file`, or to the training script",
        }.get(one.file.kind, "give it to the training script")
        yield Finding(
            location,
            f"{one.file.name} is {_KINDS[one.file.kind]}; {by} wants {_KINDS[one.wanted]}",
            advice,
            [*related, Location(one.file)],
        )


RULES = (python_word_in_json, number_that_json_lacks, placeholder_not_filled, file_of_another_kind)
