"""ZC4xx: DeepCompile and the automatic tensor parallelism of DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.arguments import argument, may_be_on
from zerocfg.rules.effects import (
    TRAINERS,
    deepspeed_data,
    edited,
    effective,
    section,
)
from zerocfg.rules.proof import crashes, logged, shows
from zerocfg.run.arguments import parsed
from zerocfg.run.engine import number, truth
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, replace_value
from zerocfg.source.node import Path

_DS = '{"train_micro_batch_size_per_gpu": 1, %s"zero_optimization": {"stage": 2}}\n'
_AUTO_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", %s'
    '"zero_optimization": {"stage": 2}}\n'
)
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\n"
_LAUNCH = "deepspeed --num_gpus %s train.py --deepspeed_config ds.json\n"
_DEEPCOMPILE: Path = ("compile", "deepcompile")
_LOUD = '"log_level": "info", '


def _compiles(run: Run) -> bool | None:
    """Whether the Trainer is told to compile; None where its arguments are not all known."""
    names = ("torch_compile", "torch_compile_backend", "torch_compile_mode")
    if run.recipe is None and not parsed(run):
        return None
    if any(name.startswith("ACCELERATE_DYNAMO") for name in run.effective.environment):
        return None
    return any(may_be_on(run, name) for name in names)


@rule(
    "ZC440",
    "deepcompile-never-compiled",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _AUTO_DS % (_LOUD + '"compile": {"deepcompile": true}, '), "recipe.yaml": _RECIPE},
        consumer="transformers",
    ).finds("error", 'ds.json: "deepcompile": true'),
    good=Example({"ds.json": _AUTO_DS % _LOUD, "recipe.yaml": _RECIPE}, consumer="transformers"),
    proof=shows(
        "step",
        {"log": logged(r"DeepCompile is enabled but engine.compile\(\) has not been called")},
    ),
    consumers=TRAINERS,
    fixable=True,
)
def deepcompile_never_compiled(run: Run) -> Iterator[Finding]:
    """`"deepcompile": true` under a Trainer that is not told to compile.

    DeepCompile is a backend of `engine.compile()`, which the Trainer calls only with `torch_compile: true`. Without it
    the job runs eagerly, as fast and with as much memory as before.

    What happens: `DeepCompile is enabled but engine.compile() has not been called; executing without DeepCompile`, at
    log level info only.

    Fix: the key is removed, which changes nothing in what runs.

    Instead: write `torch_compile: true` in the training arguments.

    When to ignore: the script calls `engine.compile()` itself.
    """
    value = section(run, "compile").get("deepcompile")
    if run.deepspeed is not None and truth(value) and _compiles(run) is False:
        yield Finding(
            Location(run.deepspeed, _DEEPCOMPILE),
            "`deepcompile` has no effect: the Trainer compiles only with `torch_compile: true`",
            "write `torch_compile: true` in the training arguments, or remove it",
            fix=edited(delete_entry, run.deepspeed, _DEEPCOMPILE, why="remove the key"),
        )


@rule(
    "ZC441",
    "deepcompile-backend",
    Severity.ERROR,
    bad=Example(
        {
            "ds.json": _AUTO_DS % '"compile": {"deepcompile": true}, ',
            "recipe.yaml": _RECIPE + "torch_compile: true\ntorch_compile_backend: aot_eager\n",
        },
        consumer="transformers",
    ).finds("error", "recipe.yaml: torch_compile_backend: aot_eager", also=('ds.json: "deepcompile": true',)),
    good=Example(
        {
            "ds.json": _AUTO_DS % "",
            "recipe.yaml": _RECIPE + "torch_compile: true\ntorch_compile_backend: aot_eager\n",
        },
        consumer="transformers",
    ),
    proof=crashes("step", "Backend aot_eager is not supported for DeepCompile"),
    consumers=TRAINERS,
    fixable=True,
)
def deepcompile_backend(run: Run) -> Iterator[Finding]:
    """DeepCompile with a `torch_compile_backend` other than inductor and eager.

    DeepCompile rewrites what one of these two compiles. The job stops after model and engine were built.

    What happens: `AssertionError: Backend aot_eager is not supported for DeepCompile.`

    Fix: `deepcompile` is removed and the backend kept; the other way out is `torch_compile_backend: inductor`.
    """
    asked = argument(run, "torch_compile_backend")
    if run.deepspeed is None or asked is None or not truth(section(run, "compile").get("deepcompile")):
        return
    if not isinstance(asked.held, str) or asked.held in ("inductor", "eager"):
        return
    yield Finding(
        asked.at("entry"),
        f"DeepCompile knows the backends inductor and eager only; DeepSpeed stops at `{asked.held}`",
        "write inductor, or remove `deepcompile`",
        [Location(run.deepspeed, _DEEPCOMPILE, label="DeepCompile is switched on")],
        edited(delete_entry, run.deepspeed, _DEEPCOMPILE, why="remove deepcompile", safe=False),
    )


@rule(
    "ZC443",
    "tensor-parallel-size-does-not-divide",
    Severity.ERROR,
    bad=(
        Example({"ds.json": _DS % '"tensor_parallel": {"autotp_size": 2}, ', "train.sh": _LAUNCH % 1}).finds(
            "error", 'ds.json: "autotp_size": 2', 2, 1
        ),
        Example(
            {"ds.json": _DS % '"tensor_parallel": {"autotp_size": 2}, ', "train.sh": _LAUNCH % 3},
            proof=crashes("init", "IndexError: list index out of range", ranks=3),
        ).finds("error", 'ds.json: "autotp_size": 2', 2, 3),
    ),
    good=Example({"ds.json": _DS % '"tensor_parallel": {"autotp_size": 1}, ', "train.sh": _LAUNCH % 1}),
    proof=crashes("init", "AssertionError", within="init_device_mesh"),
    needs={"launch"},
    fixable=True,
)
def tensor_parallel_size_does_not_divide(run: Run) -> Iterator[Finding]:
    """`autotp_size` does not divide the number of ranks.

    The ranks are laid out as data-parallel times tensor-parallel groups. The errors name neither number.

    What happens: `AssertionError` without a text where there are too few ranks, else `IndexError: list index out of
    range`, both when the engine is built.

    Fix: the largest size below that divides the ranks.
    """
    path = ("tensor_parallel", "autotp_size")
    size, ranks = number(section(run, path[0]).get(path[1])), effective(run, "num_processes")
    if run.deepspeed is None or not isinstance(size, int) or size <= 1 or isinstance(ranks, bool):
        return
    if isinstance(ranks, int) and ranks > 0 and ranks % size != 0:
        fitting = max(one for one in range(1, size) if ranks % one == 0)
        yield Finding(
            Location(run.deepspeed, path),
            f"`autotp_size` {size} does not divide the {ranks} rank{'s' if ranks > 1 else ''} of the job; DeepSpeed "
            "stops when the engine is built",
            "use a size that divides the number of ranks",
            fix=edited(replace_value, run.deepspeed, path, str(fitting), why=f"write {fitting}", safe=False),
        )


@rule(
    "ZC444",
    "tensor-parallel-ranks-counted-in-batch",
    Severity.ERROR,
    bad=Example(
        {
            "ds.json": '{"train_batch_size": 2, "tensor_parallel": {"autotp_size": 2}, '
            '"zero_optimization": {"stage": 2}}\n'
        },
        consumer="deepspeed",
    ).finds("error", 'ds.json: "train_batch_size": 2', 2, 1, 2, also=('ds.json: "autotp_size": 2',)),
    good=Example({"ds.json": '{"train_batch_size": 2, "zero_optimization": {"stage": 2}}\n'}, consumer="deepspeed"),
    proof=shows(
        "init",
        {
            "engine.batch": (2, 2),
            "engine.micro_batch": (1, 1),
            "engine.gradient_accumulation_steps": (1, 1),
            "engine.world_size": (1, 2),
        },
        ranks=2,
    ),
    consumers={"deepspeed"},
)
def tensor_parallel_ranks_counted_in_batch(run: Run) -> Iterator[Finding]:
    """`train_batch_size` with `autotp_size`: the batch is smaller by that factor than written.

    The ranks of one tensor-parallel group work on the same samples, but DeepSpeed divides `train_batch_size` among all
    ranks. The learning rate then belongs to a batch that is never seen.

    What happens: with 2 ranks, `autotp_size` 2 and `train_batch_size` 2 the engine reports a batch of 2 and takes
    micro batches of 1 in one data-parallel group: 1 sample an optimizer step.

    Instead: leave `train_batch_size` out and write micro batch and accumulation; samples an optimizer step are then
    micro batch x accumulation x ranks / `autotp_size`.

    When to ignore: the number was chosen with that in mind.
    """
    size, batch = (
        number(section(run, "tensor_parallel").get("autotp_size")),
        deepspeed_data(run).get("train_batch_size"),
    )
    if run.deepspeed is None or not isinstance(size, int) or size <= 1:
        return
    if isinstance(batch, int) and not isinstance(batch, bool) and batch > 0:
        divisor = gcd(batch, size)
        left = f"{batch // divisor}" if divisor == size else f"{batch // divisor}/{size // divisor}"
        yield Finding(
            Location(run.deepspeed, ("train_batch_size",)),
            f"`train_batch_size` {batch} counts the ranks of a tensor-parallel group as if each had its own samples: "
            f"the batch is {left} with `autotp_size` {size}",
            "write micro batch and accumulation instead",
            [Location(run.deepspeed, ("tensor_parallel", "autotp_size"), label="tensor parallelism")],
        )


RULES = (
    deepcompile_never_compiled,
    deepcompile_backend,
    tensor_parallel_size_does_not_divide,
    tensor_parallel_ranks_counted_in_batch,
)
