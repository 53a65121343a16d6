"""``python -m zerocfg.tracer``: reads a JSON list of requests, writes the list of their answers.

Request: ``config`` (the content of a config.json), ``dtype`` of the parameters, ``attention``, ``batch`` (the fields
of ``record.Batch``), ``adapters`` (null, or ``targets``, ``rank``, ``dropout``, ``dtype``) and ``full`` (every layer,
though fewer would do). Answer: ``facts``, ``depths`` with one run of stretches each, ``prefix`` and ``period`` of the
layer pattern, ``logits`` (bytes), ``versions``; or ``error``, one line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

FORMAT = 1


def answer(request: Mapping[str, Any]) -> dict[str, object]:
    """What the request asks for; raises what torch and transformers raise."""
    import torch
    import transformers
    from torch._subclasses.fake_tensor import FakeTensorMode

    from .adapters import adapt
    from .model import DTYPES, attention_of, build, depth_of, facts_of, kinds_of, period_of, read_config, with_depth
    from .record import Batch, record

    config = read_config(request["config"])
    batch = Batch(**request["batch"])
    adapters = request.get("adapters")
    architectures = request["config"].get("architectures") or ()
    attention = attention_of(config, architectures, request["attention"])

    def model_of(config: transformers.PretrainedConfig) -> transformers.PreTrainedModel:
        model = build(config, architectures, attention, DTYPES[request["dtype"]])
        if adapters:
            dtype = DTYPES[adapters["dtype"]]
            adapt(model, adapters["targets"], adapters["rank"], adapters["dropout"], dtype)
        return model

    with FakeTensorMode(allow_non_fake_inputs=True):
        model = model_of(config)
        facts = facts_of(model)
        kinds = kinds_of(model)
        prefix, period = period_of(kinds)
        layers = depth_of(config) or 0
        depths = [layers]
        if kinds and not request.get("full") and not getattr(config, "is_encoder_decoder", False):
            small = prefix + (layers - prefix) % period + 2 * period
            if 2 * small + period < layers:
                depths = [small, small + period]
        runs, counts, logits = [], [], 0
        for depth in depths:
            if depth != layers or len(depths) > 1:
                model = model_of(with_depth(config, depth))
                if kinds_of(model) != kinds[:depth]:
                    # Layers depend on how many there are.
                    return answer({**request, "full": True})
            recorder = record(model, batch)
            runs.append(recorder.stretches)
            counts.append(sum(parameter.numel() for parameter in model.parameters()))
            logits = recorder.logits
    steps = (layers - depths[-1]) // period
    if counts[-1] + steps * (counts[-1] - counts[0]) != facts["parameters"]:
        return answer({**request, "full": True})
    return {
        "format": FORMAT,
        "facts": facts,
        "layers": layers,
        "prefix": prefix,
        "period": period,
        "depths": depths,
        "runs": runs,
        "logits": logits,
        "attention": attention,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }


def answer_or_error(request: Mapping[str, Any]) -> dict[str, object]:
    """The answer to a request, whatever happens."""
    try:
        return answer(request)
    except ImportError as error:
        return {"error": f"{error.name or error} cannot be imported"}
    except Exception as error:
        lines = str(error).strip().splitlines()
        return {"error": f"{type(error).__name__}: {lines[0] if lines else ''}"[:500]}


def answer_text(text: str) -> str:
    """The answers to a list of requests, JSON both."""
    return json.dumps([answer_or_error(request) for request in json.loads(text)])


def main() -> None:
    """Everything that libraries print goes to standard error."""
    out, sys.stdout = sys.stdout, sys.stderr
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
    out.write(answer_text(sys.stdin.read()))
    out.flush()


if __name__ == "__main__":
    main()
