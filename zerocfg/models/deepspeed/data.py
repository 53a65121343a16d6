"""The ``data_efficiency`` section: curriculum learning, dynamic batching, random layer-token dropping."""

from __future__ import annotations

from zerocfg.models.base import key
from zerocfg.models.deepspeed.section import Loose

_SOURCE = "deepspeed/runtime/data_pipeline/config.py"


class CurriculumLearning(Loose):
    """Order of the samples by difficulty. With enabled, other keys are copied to the sampler as they are."""

    unknown = "passed"
    source = _SOURCE

    enabled: bool = key(False, "Use a curriculum.")
    data_cluster_path: str | None = key(None, "Directory for the clusters of samples.")
    curriculum_metrics: dict[str, object] = key(None, "Metrics by name; needed when enabled.")


class DynamicBatching(Loose):
    """Batches of similar numbers of tokens."""

    source = _SOURCE

    enabled: bool = key(False, "Vary the batch size.")
    lr_scaling_method: str = key("linear", "linear, sqrt or none.")
    min_batch_size: int = key(1, "Smallest batch.", unit="samples", auto_raw="error")
    max_batch_size: int = key(None, "Largest batch.", unit="samples", auto_raw="error")
    sequence_picking_order: str = key("dataloader", "dataloader, random or seqlen.")
    max_tokens: int = key(None, "Most tokens in a batch; needed when enabled.", unit="tokens")
    metrics_path: str = key(None, "Directory with the sequence lengths.")
    verbose: bool = key(False, "Print each batch.")


class DataSampling(Loose):
    """Sampling of the data."""

    source = _SOURCE

    enabled: bool = key(False, "Use DeepSpeed's sampler.")
    num_epochs: int = key(1000, "Passes over the data.", unit="epochs")
    num_workers: int = key(0, "Worker processes of the data loader.", unit="processes")
    pin_memory: bool = key(False, "Pin the batches.")
    curriculum_learning: CurriculumLearning = key(CurriculumLearning, "Curriculum.", auto_raw="error")
    dynamic_batching: DynamicBatching = key(DynamicBatching, "Dynamic batches.", auto_raw="error")


class RandomLtd(Loose):
    """Random layer-token dropping. With enabled, other keys are copied to the scheduler as they are."""

    unknown = "passed"
    source = _SOURCE

    enabled: bool = key(False, "Drop tokens.")
    total_layer_num: int = key(None, "Layers of the model.")
    random_ltd_layer_num: int = key(None, "Layers that drop tokens.")
    random_ltd_layer_id: list[int] = key(None, "Numbers of the layers that drop tokens.")
    model_mask_name: str | None = key(None, "Name of the layer's argument with the attention mask.")
    model_type: str = key(None, "encoder or decoder.")
    hidden_state_order: str = key(None, "Order of the dimensions of the hidden states.")
    random_ltd_schedule: dict[str, object] = key(None, "How many tokens stay, by step.")
    layer_token_lr_schedule: dict[str, object] = key(None, "Learning-rate schedule by layer tokens; not implemented.")


class DataRouting(Loose):
    """Routing of tokens through layers."""

    source = _SOURCE

    enabled: bool = key(False, "Route.")
    random_ltd: RandomLtd = key(RandomLtd, "Random layer-token dropping.", auto_raw="error")


class DataEfficiency(Loose):
    """Data efficiency library."""

    source = _SOURCE

    enabled: bool = key(False, "Use the library.")
    seed: int = key(1234, "Seed of the sampler.")
    data_sampling: DataSampling = key(DataSampling, "Sampling.", auto_raw="error")
    data_routing: DataRouting = key(DataRouting, "Routing.", auto_raw="error")
