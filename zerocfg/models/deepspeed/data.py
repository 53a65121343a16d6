"""The ``data_efficiency`` section: curriculum learning, dynamic batching, random layer-token dropping."""

from __future__ import annotations

from zerocfg.models.base import key
from zerocfg.models.deepspeed.section import Loose

_SOURCE = "deepspeed/runtime/data_pipeline/config.py"


class CurriculumLearning(Loose):
    """Order of the samples by difficulty. With enabled, other keys are copied to the sampler as they are."""

    unknown = "passed"
    source = _SOURCE
    known_as = "data_efficiency.data_sampling.curriculum_learning"

    enabled: bool = key("Use a curriculum.")
    data_cluster_path: str | None = key("Directory for the clusters of samples.", default=None)
    curriculum_metrics: dict[str, object] = key("Metrics by name; needed when enabled.")


class DynamicBatching(Loose):
    """Batches of similar numbers of tokens."""

    source = _SOURCE
    known_as = "data_efficiency.data_sampling.dynamic_batching"

    enabled: bool = key("Vary the batch size.")
    lr_scaling_method: str = key("linear, sqrt or none.")
    min_batch_size: int = key("Smallest batch.", unit="samples", auto_raw="error")
    max_batch_size: int = key("Largest batch.", unit="samples", auto_raw="error")
    sequence_picking_order: str = key("dataloader, random or seqlen.")
    max_tokens: int = key("Most tokens in a batch; needed when enabled.", unit="tokens")
    metrics_path: str = key("Directory with the sequence lengths.", default=None)
    verbose: bool = key("Print each batch.")


class DataSampling(Loose):
    """Sampling of the data."""

    source = _SOURCE
    known_as = "data_efficiency.data_sampling"

    enabled: bool = key("Use DeepSpeed's sampler.")
    num_epochs: int = key("Passes over the data.", unit="epochs")
    num_workers: int = key("Worker processes of the data loader.", unit="processes")
    pin_memory: bool = key("Pin the batches.")
    curriculum_learning: CurriculumLearning = key("Curriculum.", default=CurriculumLearning, auto_raw="error")
    dynamic_batching: DynamicBatching = key("Dynamic batches.", default=DynamicBatching, auto_raw="error")


class RandomLtd(Loose):
    """Random layer-token dropping. With enabled, other keys are copied to the scheduler as they are."""

    unknown = "passed"
    source = _SOURCE
    known_as = "data_efficiency.data_routing.random_ltd"

    enabled: bool = key("Drop tokens.")
    total_layer_num: int = key("Layers of the model.", default=None)
    random_ltd_layer_num: int = key("Layers that drop tokens.", default=None)
    random_ltd_layer_id: list[int] = key("Numbers of the layers that drop tokens.", default=None)
    model_mask_name: str | None = key("Name of the layer's argument with the attention mask.", default=None)
    model_type: str = key("encoder or decoder.", default=None)
    hidden_state_order: str = key("Order of the dimensions of the hidden states.", default=None)
    random_ltd_schedule: dict[str, object] = key("How many tokens stay, by step.", default=None)
    layer_token_lr_schedule: dict[str, object] = key(
        "Learning-rate schedule by layer tokens; not implemented.", default=None
    )


class DataRouting(Loose):
    """Routing of tokens through layers."""

    source = _SOURCE
    known_as = "data_efficiency.data_routing"

    enabled: bool = key("Route.")
    random_ltd: RandomLtd = key("Random layer-token dropping.", default=RandomLtd, auto_raw="error")


class DataEfficiency(Loose):
    """Data efficiency library."""

    source = _SOURCE
    known_as = "data_efficiency"

    enabled: bool = key("Use the library.")
    seed: int = key("Seed of the sampler.")
    data_sampling: DataSampling = key("Sampling.", default=DataSampling, auto_raw="error")
    data_routing: DataRouting = key("Routing.", default=DataRouting, auto_raw="error")
