"""Activations of a model's micro batches: traced on the real model class where torch is, else by the closed formula."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocfg.budgets import TRACE_SECONDS
from zerocfg.memory.activations.generation import cached
from zerocfg.memory.activations.tracer_process import TraceError
from zerocfg.memory.activations.tracing import Adapters, Traced, trace, trace_all
from zerocfg.memory.activations.vision import with_images
from zerocfg.memory.lora import Base, adapters, default_targets, of_layer, quantised_base
from zerocfg.memory.rollouts import Sampling
from zerocfg.memory.tensor_parallel import config_of_rank, facts_of_rank, timeline_of_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocfg.memory.options import Workload
    from zerocfg.memory.terms import Timeline
    from zerocfg.models.model_facts import ModelFacts
    from zerocfg.resolve.model.setup import Setup


class Activations:
    """Timelines of one model's micro batches, each found once: traced where torch is, else by the closed formula."""

    def __init__(self, facts: ModelFacts, config: dict[str, Any] | None, *, tracing: bool, python: str | None) -> None:
        self.facts, self.config, self.tracing, self.python = facts, config, tracing, python
        self.notes: list[str] = []
        self.built: Traced | None = None
        self._found: dict[tuple[Workload, str], Timeline | None] = {}

    def of(self, setup: Setup, workload: Workload | None) -> Timeline | None:
        """The timeline of a micro batch; None where it is not known (the notes say why)."""
        if workload is None:
            return None
        asked = (workload, setup.precision)
        if asked not in self._found:
            known = self._generates(setup)
            self._found[asked] = (self._traced(setup, workload) or self._formula(setup, workload)) if known else None
        return self._found[asked]

    def sampling(self, setup: Setup, workload: Workload | None) -> Sampling | None:
        """How what is trained on is sampled; of a micro batch whose activations are not known only what is beside."""
        if setup.rollouts is None:
            return None
        known = self.of(setup, workload) is not None
        return Sampling(setup.rollouts, workload if known else None, self.config or {})

    def _generates(self, setup: Setup) -> bool:
        """Whether what it takes to sample is known, where it samples."""
        if setup.rollouts is None or (setup.rollouts.by != "transformers" and not setup.rollouts.reference):
            return True
        try:
            cached(self.facts, setup.precision, self.config or {})
        except ValueError as error:
            self._note(f"activations are not known: {error}")
            return False
        return True

    def _config(self, setup: Setup) -> dict[str, Any] | None:
        """The config that is traced: of a model that saves for backward what a rank of this one does."""
        return config_of_rank(self.config, setup.options) if self.tracing and isinstance(self.config, dict) else None

    def prepare(self, setup: Setup, workloads: Sequence[Workload]) -> None:
        """Traces several micro batches in one process, which saves importing torch for each."""
        config = self._config(setup)
        workloads = [item for item in workloads if _traceable(setup, item)]
        if config is None or not workloads:
            return
        python = self.python or sys.executable
        found = trace_all(
            config, workloads, setup.precision, lora=self._adapters(setup), python=python, timeout=TRACE_SECONDS
        )
        for workload, item in zip(workloads, found, strict=True):
            timeline = self._with_images(item.timeline, setup, workload) if isinstance(item, Traced) else None
            if timeline is not None:
                self._found[workload, setup.precision] = timeline

    def _traced(self, setup: Setup, workload: Workload) -> Timeline | None:
        config = self._config(setup)
        if config is None or not _traceable(setup, workload):
            return None
        try:
            python = self.python or sys.executable
            found = trace(
                config, workload, setup.precision, lora=self._adapters(setup), python=python, timeout=TRACE_SECONDS
            )
        except TraceError as error:
            self.tracing = False
            self.notes.append(f"activations are not traced: {error}")
            return None
        self.built = found
        return self._with_images(found.timeline, setup, workload)

    def _with_images(self, text: Timeline, setup: Setup, workload: Workload) -> Timeline | None:
        """What was traced is the text; None where what images add to it is not known (the notes say why)."""
        if self.facts.vision_parameters is None:
            return text
        try:
            return with_images(text, self.facts.trainable or 0, workload, setup.precision)
        except ValueError as error:
            self._note(f"activations are not known: {error}")
            return None

    def _adapters(self, setup: Setup) -> Adapters | None:
        """The adapters with the targets that PEFT would choose where the recipe leaves them open."""
        if setup.lora is None or setup.lora.targets:
            return setup.lora
        return replace(setup.lora, targets=default_targets(self.config or {}))

    def _formula(self, setup: Setup, workload: Workload) -> Timeline | None:
        try:
            return timeline_of_rank(self.facts, workload, setup.precision, self.config, setup.options)
        except ValueError as error:
            self._note(f"activations are not known: {error}")
            return None

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _traceable(setup: Setup, workload: Workload) -> bool:
    """Whether it is known how the loss is computed: not in pieces, where a rank has a part of the output head."""
    return setup.options.tensor_parallel == 1 or not workload.fused_loss


def of_rank(facts: ModelFacts, config: dict[str, Any] | None, setup: Setup) -> ModelFacts:
    """The facts of the model that one rank computes with: its part of a split one, or all of it with low-rank adapters
    added, which alone are trained. Raises ValueError where they are not known."""
    if setup.options.tensor_parallel > 1:
        return facts_of_rank(facts, config, setup.options)
    if setup.lora is None or facts.parameters is None:
        return facts
    asked = config or {}, setup.lora.rank, setup.lora.targets or None
    _, added = adapters(*asked)
    counts = {"parameters": facts.parameters + added, "trainable_parameters": added, "adapters": of_layer(*asked)}
    return facts.model_copy(update=counts)


def base_of(config: dict[str, Any] | None, setup: Setup) -> Base | None:
    """What is kept of a quantised base model; None: it is none. Raises ValueError where its shapes are not known."""
    return None if setup.quantised is None else quantised_base(config or {}, setup.quantised)
