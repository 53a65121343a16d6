"""The declarative source: ``zerocfg.yaml``.

A spec names the files that make one training job, the model and the machine, and nothing that those files
already say::

    version: 1
    runs:
      sft:
        consumer: trl
        script: train.py
        model: model/config.json
        recipe: recipe.yaml
        deepspeed: ds_config.json
        hardware: 8xA100-80GB

Paths are relative to the folder of the spec. Whatever a run leaves open (an ``"auto"`` in a source file, a
ZeRO stage that nobody names) is filled by ``zerocfg build``. With ``goals:`` it also chooses what no source names and
the libraries would fill with a default: the micro batch, offload, gradient checkpointing, bucket sizes, and what ZeRO-3
keeps whole or gathered.

Runs may share keys (``extends: NAME`` of ``bases:``) and be multiplied (``matrix: {hardware: [8xA100, 8xH100]}``);
:mod:`zerocfg.run.expand` turns both into plain runs before anything else looks at them.
"""

from __future__ import annotations

import math
import re
from copy import copy
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, create_model, field_validator
from pydantic.fields import FieldInfo

from zerocfg.models.base import Consumer, Section, key
from zerocfg.models.model_facts import ModelFacts, inline

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
"""A run's name becomes the name of a folder."""

LIBRARIES = ("deepspeed", "accelerate", "transformers", "trl", "torch")
"""Whose releases decide something; others may be stated, too."""
_RELEASE = r"\s*(===|==|~=|!=|>=|<=|>|<|)\s*v?\d[^,\s]*\s*"
_RELEASES = re.compile(rf"{_RELEASE}(,{_RELEASE})*\Z")

_NUMBER = re.compile(r"[0-9][0-9_]*(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")


def _whole(value: object) -> object:
    """YAML 1.1 reads ``7e9`` as text; here it is the number that its author meant."""
    if isinstance(value, str) and len(value) <= 40 and _NUMBER.match(value):
        value = float(value.replace("_", ""))
    if isinstance(value, float) and value == value and abs(value) < 1e18 and value == int(value):
        return int(value)
    if isinstance(value, bool):
        raise ValueError("a number is needed here, not true or false")
    return value


def _relative(value: str) -> str:
    if not value.strip():
        raise ValueError("it must not be empty")
    if "\x00" in value or "\n" in value:
        raise ValueError("it must be one line, without NUL")
    return value


Count = Annotated[int, BeforeValidator(_whole)]
"""A whole number; ``7e9`` is one too."""


def _finite(value: object) -> object:
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("a number is needed here")
    return value


Price = Annotated[float, BeforeValidator(_finite)]


def _facts(value: object) -> object:
    if isinstance(value, dict):
        return inline(value)
    if isinstance(value, (str, ModelFacts)) or value is None:
        return value
    raise ValueError("a path of a config.json or a mapping of the model's numbers is needed here")


Model = Annotated[str | ModelFacts | None, BeforeValidator(_facts)]
"""The path of a ``config.json``, or facts written out: ``{parameters: 7e9, hidden_size: 4096}``."""


class Goals(Section):
    """What zerocfg aims at where the sources leave a value open."""

    unknown = "error"
    library = "zerocfg"
    yaml_numbers = True

    prefer: Literal["throughput", "memory", "cost"] = key(
        "Among the plans that fit: most tokens a second, least memory of a device, or lowest price of a token (may "
        "leave devices unused).",
        default="throughput",
    )
    global_batch_size: Count | None = key(
        "Samples of one optimizer step over all ranks; micro batch and accumulation are chosen to give it.",
        default=None,
        unit="samples",
        gt=0,
    )
    trace: bool = key(
        "Trace the activations of the best plans on the real model class (needs torch and transformers where the build "
        "runs); without it they follow from a formula.",
        default=False,
    )


class SampleImages(Section):
    """The images of a sample, for a model that reads them. The tokens that they become are among `sequence_length`."""

    unknown = "error"
    library = "zerocfg"
    yaml_numbers = True

    per_sample: Count = key("Images of one sample, at most; 0 for text alone.", unit="images", ge=0)
    pixels: Count | None = key(
        "Pixels of one image after the processor resized it, at most (`max_pixels` of Qwen2-VL's); not needed for a "
        "model whose images all have one size.",
        default=None,
        unit="pixels",
        gt=0,
    )


class _Script(Section):
    """A target whose file is a script: each of its words stands on a line there, which it may not leave."""

    unknown = "error"
    library = "zerocfg"

    @field_validator("partition", "account", "time", "qos", "folder", check_fields=False)
    @classmethod
    def _one_line(cls, value: str | None) -> str | None:
        return None if value is None else _relative(value)

    @field_validator("options", "setup", check_fields=False)
    @classmethod
    def _lines(cls, value: list[str]) -> list[str]:
        return [_relative(line) for line in value]


class Slurm(_Script):
    """How `job.sbatch` asks Slurm for the nodes."""

    partition: str | None = key("Partition to run in.", default=None)
    account: str | None = key("Account to charge.", default=None)
    time: str | None = key('Time limit, e.g. `"24:00:00"`.', default=None)
    qos: str | None = key("Quality of service.", default=None)
    options: list[str] = key("Further lines behind `#SBATCH`, e.g. `--exclusive`.", default=[])
    setup: list[str] = key(
        "Shell lines to run on every node before the launch, e.g. `source venv/bin/activate`.", default=[]
    )

    preflight: bool = key(
        "Run `zerocfg preflight` on the job's nodes first; a node that fails it keeps the training from starting.",
        default=False,
    )


class JobSet(Section):
    """How `jobset.yaml` asks Kubernetes for the nodes (jobset.x-k8s.io/v1alpha2)."""

    unknown = "error"
    library = "zerocfg"
    yaml_numbers = True

    image: str = key("Container image that holds the training environment and the spec's folder.")
    folder: str = key("Where the spec's folder is inside the image.", default="/workspace")
    namespace: str | None = key("Namespace of the job.", default=None)
    resource: str | None = key(
        "Name of the device resource; by the vendor unless stated: `nvidia.com/gpu`, `amd.com/gpu`, ...", default=None
    )
    shared_memory_gib: Count = key("Size of /dev/shm, which data loaders and NCCL use.", default=64, unit="GiB", gt=0)


class SkyPilot(_Script):
    """How `sky.yaml` asks SkyPilot for the nodes."""

    yaml_numbers = True

    accelerators: str | None = key(
        "What SkyPilot calls the devices, e.g. `H100`, without their number; by the hardware unless stated.",
        default=None,
    )
    resources: dict[str, object] = key(
        "Further keys of the task's `resources`, e.g. `{infra: aws, use_spot: true}`.", default={}
    )
    setup: list[str] = key("Shell lines to run once on every node, e.g. `pip install -r requirements.txt`.", default=[])


class Ray(_Script):
    """How `ray_job.sh` submits the run to a Ray cluster."""

    yaml_numbers = True

    folder: str | None = key(
        "Where the spec's folder is on the nodes; without it, it travels as Ray's working directory.", default=None
    )
    runtime_env: dict[str, object] = key(
        "Keys of Ray's runtime environment, e.g. `{pip: [deepspeed], env_vars: {NCCL_DEBUG: INFO}}`.", default={}
    )
    setup: list[str] = key(
        "Shell lines to run on every node before the launch, e.g. `source venv/bin/activate`.", default=[]
    )


class Ssh(_Script):
    """How `ssh.sh` starts the run on each node."""

    folder: str | None = key(
        "Where the spec's folder is on the nodes; without it the same path as where `ssh.sh` is started.", default=None
    )
    options: list[str] = key('Words for ssh, e.g. `[-p, "2222"]`.', default=[])
    setup: list[str] = key(
        "Shell lines to run on every node before the launch, e.g. `source venv/bin/activate`.", default=[]
    )


class Targets(Section):
    """What is emitted beside the configs and `launch.sh`."""

    unknown = "error"
    library = "zerocfg"

    hjson: bool = key(
        "`ds_config.hjson`: the DeepSpeed config with the reason for each value as a comment.", default=False
    )
    slurm: Slurm | None = key("`job.sbatch` for Slurm; `{}` for the defaults of the cluster.", default=None)
    jobset: JobSet | None = key("`jobset.yaml` for Kubernetes.", default=None)
    skypilot: SkyPilot | None = key("`sky.yaml` for SkyPilot.", default=None)
    ray: Ray | None = key("`ray_job.sh` for a Ray cluster.", default=None)
    ssh: Ssh | None = key("`ssh.sh`, which starts every node over ssh.", default=None)


class RunSpec(Section):
    """One training job."""

    unknown = "error"
    library = "zerocfg"
    yaml_numbers = True

    consumer: Consumer = key("Who reads the config in the end: which library's training loop the script runs.")
    script: str = key("The Python script that `launch.sh` starts, relative to the spec's folder.")
    launch: str | None = key(
        "A launch line to start from, as `scripts/train.sh:14`: its launcher options, the configs that it names and "
        "the words after its script count where the run says nothing else.",
        default=None,
    )
    arguments: list[str | int | float] | None = key(
        "Words after the script. Absent: those of `launch`; without it `--config RECIPE` for trl, the recipe for "
        "transformers.",
        default=None,
    )
    model: Model = key(
        "Path of the model's `config.json`, or its numbers: `{parameters: 7e9, hidden_size: 4096}`.", default=None
    )
    recipe: str | None = key("YAML or JSON file of TrainingArguments (for trl, of its parser).", default=None)
    accelerate: str | None = key("An accelerate config to start from.", default=None)
    deepspeed: str | None = key("A DeepSpeed JSON to start from; may hold `auto`.", default=None)
    engine: Literal["deepspeed", "ddp", "fsdp"] | None = key(
        "What runs the training. Without it: deepspeed or fsdp when a source asks for it, else ddp.", default=None
    )
    goals: Goals | None = key(
        "What to aim at; with it zerocfg chooses every value that no source names and that matters.", default=None
    )
    launcher: Literal["accelerate", "torchrun", "deepspeed"] | None = key(
        "What launch.sh starts the job with. Without it: accelerate; torchrun for a training loop of its own.",
        default=None,
    )
    hosts: list[str] = key(
        "Names of the nodes, for the hostfile of `launcher: deepspeed`; the first one is rank 0.", default=[]
    )
    targets: Targets = key("What is emitted beside the configs and `launch.sh`.", default=Targets)
    hardware: str | None = key(
        "`8xA100-80GB` (`2x8xH100-80GB` for two nodes), the path of a probed profile, or `this` machine.", default=None
    )
    train_samples: Count | None = key(
        "Samples of the training set; needed where the number of steps must be known.",
        default=None,
        unit="samples",
        gt=0,
    )
    sequence_length: Count | None = key(
        "Tokens of one sample, padded or packed (GRPO: prompt and completion); memory and time are predicted for it.",
        default=None,
        unit="tokens",
        gt=0,
    )
    images: SampleImages | None = key(
        "Images of one sample; without it no activations are predicted for a model that reads images.", default=None
    )
    gradient_checkpointing: bool | None = key(
        "Whether the script recomputes activations; a Trainer's recipe says it itself.", default=None
    )
    attention: Literal["eager", "sdpa", "flash_attention_2"] | None = key(
        "How attention is computed, where the recipe does not say it (`attn_implementation`); sdpa if nobody does.",
        default=None,
    )
    fused_loss: bool | None = key(
        "Whether the loss is computed without holding all logits (Liger kernels, cut cross entropy).", default=None
    )
    price_per_hour: Price | None = key(
        "Price of one accelerator for an hour; with it, the cost of a step is predicted.", default=None, ge=0
    )
    versions: dict[str, str] = key('Library releases to build for, e.g. `deepspeed: "0.19.8"`.', default={})

    @field_validator("script", "launch", "recipe", "accelerate", "deepspeed", "hardware")
    @classmethod
    def _paths(cls, value: str | None) -> str | None:
        return None if value is None else _relative(value)

    @field_validator("versions", mode="before")
    @classmethod
    def _quoted(cls, value: object) -> object:
        if isinstance(value, dict):
            for name, version in value.items():
                if not isinstance(version, str):
                    raise ValueError(f"{name}: the release must be quoted: YAML reads {version} as a number")
                if not _RELEASES.match(version):
                    raise ValueError(f"{name}: a release is needed, as 0.19.8, >=0.18 or >=0.18,<0.20")
                near = get_close_matches(name, LIBRARIES, 1, 0.8)
                if name not in LIBRARIES and near:
                    raise ValueError(f"{name}: did you mean {near[0]}?")
        return value


def _run_name(value: str) -> str:
    if not RUN_NAME.match(value) or len(value) > 100:
        raise ValueError("letters, digits, '.', '_' and '-' only, a letter or digit first, at most 100 of them")
    return value


RunName = Annotated[str, AfterValidator(_run_name)]


class Spec(Section):
    """What a ``zerocfg.yaml`` amounts to: plain runs."""

    unknown = "error"
    library = "zerocfg"

    version: Literal[1] = key("Version of this format.")
    runs: dict[RunName, RunSpec] = key("The training jobs by name.")

    @field_validator("runs")
    @classmethod
    def _some(cls, value: dict[str, RunSpec]) -> dict[str, RunSpec]:
        if not value:
            raise ValueError("a spec needs at least one run")
        return value


def _axis(name: str, field: FieldInfo) -> Any:
    kind: Any = field.annotation
    return (list[kind] | dict[str, kind] | None, key(f"Values of `{name}`, as a list or by label.", default=None))


class _Axes(Section):
    """Keys of a run with several values each; every combination is a run, named RUN-LABEL-LABEL."""

    unknown = "error"
    library = "zerocfg"


_every_axis: dict[str, Any] = {name: _axis(name, field) for name, field in RunSpec.model_fields.items()}
Matrix = create_model("Matrix", __base__=_Axes, __doc__=_Axes.__doc__, **_every_axis)


_removable: dict[str, Any] = {
    name: (RunSpec.model_fields[name].annotation | None, copy(RunSpec.model_fields[name]))  # type: ignore[operator]
    for name in ("hosts", "targets", "versions")
}
_Removable = create_model("_Removable", __base__=RunSpec, **_removable)
"""Every key that is not required may be null, which takes away what a base gave."""


class WrittenRun(_Removable):  # type: ignore[misc,valid-type]
    """One training job, or with `matrix` several."""

    required_unless: ClassVar[tuple[str, ...] | None] = ("extends", "matrix")

    extends: str | list[str] | None = key(
        "Names of `bases` whose keys this run takes, later before earlier, its own before all; `other.yaml#NAME` for "
        "one of another file.",
        default=None,
    )
    matrix: Matrix | None = key("Keys with several values each: every combination is a run.", default=None)  # type: ignore[valid-type]


class Base(WrittenRun):
    """Keys that runs share."""

    required_unless = None


class WrittenSpec(Section):
    """A whole ``zerocfg.yaml``."""

    unknown = "error"
    library = "zerocfg"

    version: Literal[1] = key("Version of this format.")
    runs: dict[str, WrittenRun] = key("The training jobs by name.")
    bases: dict[str, Base] | None = key("What runs take with `extends`, by name.", default=None)
