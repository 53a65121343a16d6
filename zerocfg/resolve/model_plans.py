"""The plans for a model on some hardware without a spec: of a job of the Trainer that leaves everything else open.

The job is an ordinary spec in a folder of its own, so that it is chosen and predicted as any other.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocfg.hardware.between_nodes import with_network
from zerocfg.hardware.profile import load_hardware
from zerocfg.models.llama_shape import llama_of
from zerocfg.models.model_facts import from_config
from zerocfg.models.vision import vision_of
from zerocfg.resolve.build import THIS, BuildResult, build_plans
from zerocfg.resolve.explain.alternatives import Alternative, alternatives
from zerocfg.resolve.explain.forecast import forecast
from zerocfg.resolve.model.setup import Setup, setup_of_run
from zerocfg.resolve.spec.spec_file import read_spec
from zerocfg.run.config import VERSIONS
from zerocfg.run.discover import Files
from zerocfg.run.hub import CONFIG
from zerocfg.run.model import UNKNOWN
from zerocfg.run.model_source import nearest, open_model
from zerocfg.source import boundary

if TYPE_CHECKING:
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.resolve.model.gaps import Gap

_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)([kmbt]?)", re.IGNORECASE)
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
SAMPLES = 64  # of a step, or as many as make one for each rank
TOKENS = 2048  # of a sample


@dataclass(frozen=True, slots=True)
class Model:
    """A model's config, and in words where it comes from."""

    name: str
    config: dict[str, Any]
    origin: str


@dataclass(frozen=True, slots=True)
class ModelImages:
    """The images of a sample: how many, the pixels of one, and the tokens of the sample that all of them are.

    ``tokens`` is None where it is not known.
    """

    per_sample: int
    pixels: int | None = None
    tokens: int | None = 0


@dataclass(frozen=True, slots=True)
class ModelPlans:
    """What was compared for a model. ``rows`` are empty where no plan fits; ``built`` then says why.

    ``setup`` is that of the best plan, else of what all of them share; ``notes`` are what is assumed or left out.
    ``images``: those of a sample, None for a model that reads none.
    """

    model: Model
    profile: HardwareProfile
    built: BuildResult
    rows: list[Alternative]
    setup: Setup
    gaps: tuple[Gap, ...]
    notes: tuple[str, ...]
    samples: int
    tokens: int
    images: ModelImages | None


def find_model(text: str, folder: Path) -> Model | None:
    """The model that a word means: a config.json or its folder, a name on the hub, a number of parameters (``7B``).

    None where it is none of them. Raises ValueError with one line for a config that cannot be read, or a number that no
    model has.
    """
    file = open_model(text, folder, Files())
    if file is not None:
        data = file.data()
        if not isinstance(data, dict):
            raise ValueError(f"{file.name} holds no config of a model")
        if file.path is None:
            return Model(text, data, "as published")
        cached = not (folder / text).exists()
        return Model(text, data, "config.json in the hub's cache" if cached else file.path.name)
    match = _COUNT.fullmatch(text)
    if match is None:
        return None
    config = llama_of(int(float(match[1]) * _SCALES[match[2].lower()]))
    shape = f"{config['num_hidden_layers']} layers of {config['hidden_size']}"
    return Model(text, config, f"of Llama's shape, {shape}")


def not_a_model(text: str) -> str:
    """What to write for a name that means no model, in one line."""
    download = f"`hf download {text} {CONFIG}` puts a model into the hub's cache"
    return f"{nearest(text)}{download}, and a size (7B) stands for any"


def plans_of(
    model: Model,
    hardware: str,
    *,
    lora: bool,
    tokens: int | None,
    samples: int | None,
    network: str | None = None,
    images: int | None = None,
    pixels: int | None = None,
) -> ModelPlans:
    """All plans for the model on the hardware, the best first.

    ``images`` of ``pixels`` each are in every sample; without a number text alone is planned. Raises ValueError with
    one line where the hardware is not known, the model does not read such images, or nothing can be predicted.
    """
    profile = _profile(hardware, network)
    length = tokens or TOKENS
    seen = _images(model, length, images, pixels)
    ranks = profile.world_size
    batch = samples or math.ceil(SAMPLES / ranks) * ranks
    if batch % ranks:
        near = dict.fromkeys(size for size in (batch // ranks * ranks, -(-batch // ranks) * ranks) if size)
        raise ValueError(f"{batch} samples cannot be shared among {ranks} ranks; take {' or '.join(map(str, near))}")
    with tempfile.TemporaryDirectory(prefix="zerocfg-") as folder, boundary.lent(folder):
        half = "float16" if profile.accelerator.bf16 is False else "bfloat16"
        spec = _written(Path(folder).resolve(), model, half if lora else None, length, batch, seen)
        (built,) = build_plans(read_spec(spec), None, hardware, network=network)
        if built.plan is None and not built.inputs.considered:
            raise ValueError(f"nothing can be predicted: {built.problems[0].message}")
        known = forecast(built, tracing=False, changes=False) if built.plan is not None else None
        rows = alternatives(built) if known is not None else []
    setup = known.setup if known is not None else _shared(built, ranks)
    gaps, notes = (known.gaps, known.notes) if known is not None else ((), ())
    return ModelPlans(model, profile, built, rows, setup, gaps, (*profile.notes, *notes), batch, length, seen)


def _images(model: Model, length: int, images: int | None, pixels: int | None) -> ModelImages | None:
    """What a sample of ``length`` tokens holds beside text. Raises ValueError for images that the model cannot have."""
    if from_config(model.config).vision_parameters is None:
        if images:
            raise ValueError(
                f"{model.name} (model type {model.config.get('model_type')}) has no vision part that zerocfg knows; "
                "leave --images out to plan it for text"
            )
        return None
    if not images:
        return ModelImages(0)
    vision = vision_of(model.config)
    if vision is None:  # its tower is counted, and no more
        return ModelImages(images, pixels, None)
    if vision.fixed is None and pixels is None:
        raise ValueError(
            "nothing says how large an image is; add its size after resizing, for example --pixels 1003520"
        )
    if vision.fixed is not None and pixels not in (None, vision.fixed):
        raise ValueError(f"{model.name} resizes every image to {vision.fixed:,} pixels; leave --pixels out")
    tokens = images * vision.tokens(pixels)
    if tokens > length:
        raise ValueError(
            f"the images of a sample are {tokens:,} tokens, more than its {length:,}; take fewer --images, smaller "
            f"ones (--pixels), or longer samples (--seq {tokens + 1} or more)"
        )
    return ModelImages(images, pixels or vision.fixed, tokens)


def _shared(built: BuildResult, ranks: int) -> Setup:
    """What every plan of a run has, whatever is chosen."""
    effective = built.inputs.before or built.run.effective

    def value(name: str) -> Any:
        setting = effective.get(name)
        return None if setting is None or setting.value is UNKNOWN else setting.value

    return setup_of_run(built.run, value, built.inputs.spec, ranks)


def _profile(hardware: str, network: str | None) -> HardwareProfile:
    if hardware == THIS:
        from zerocfg.hardware.probe import probe

        return with_network(probe(), network)
    return load_hardware(hardware, network)


def _written(
    folder: Path, model: Model, base: str | None, tokens: int, samples: int, images: ModelImages | None
) -> Path:
    """The spec of such a job, with what it names. ``base``: the dtype of a base model that gets adapters, else None."""
    run: dict[str, Any] = {
        "consumer": "trl" if base else "transformers",
        "script": "train.py",
        "model": CONFIG,
        "recipe": "recipe.json",
        "sequence_length": tokens,
        "goals": {"global_batch_size": samples},
        "versions": VERSIONS,
    }
    if images is not None:
        run["images"] = {"per_sample": images.per_sample} | ({"pixels": images.pixels} if images.pixels else {})
    recipe: dict[str, Any] = {"output_dir": "out", "max_steps": 1000}
    if base is not None:
        recipe |= {"use_peft": True, "dtype": base}
    files = {"zerocfg.yaml": {"version": 1, "runs": {"model": run}}, CONFIG: model.config, "recipe.json": recipe}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    (folder / "train.py").write_text("", encoding="utf-8")
    return folder / "zerocfg.yaml"
