"""TrainingArguments: checkpoints, evaluation, logging, the Hub."""

from __future__ import annotations

from typing import Literal

from zerocfg.models.base import Section
from zerocfg.models.training_arguments.facts import integer, items, number, optional_switch, switch, text

Interval = Literal["no", "steps", "epoch"]
LogLevel = Literal["detail", "debug", "info", "warning", "error", "critical", "passive"]


class Checkpoints(Section):
    """What is written, and when."""

    output_dir: str | None = text("Folder of checkpoints and results; default: trainer_output.")
    save_strategy: Literal["no", "steps", "epoch", "best"] = text("When to save.")
    save_steps: float = number("Distance of checkpoints; below 1 a fraction of all steps.", unit="steps or fraction")
    save_total_limit: int | None = integer("Checkpoints to keep.")
    save_only_model: bool = switch("Leave out optimizer state: not resumable. Without effect when ZeRO-3 saves shards.")
    save_on_each_node: bool = switch("Every machine writes, for machines without a common file system.")
    enable_jit_checkpoint: bool = switch("Save once more when the job is told to end.")
    load_best_model_at_end: bool = switch(
        "Load the best checkpoint in the end; eval_strategy must equal save_strategy, or that be best."
    )
    resume_from_checkpoint: str | None = text("Checkpoint to go on from; read by the script.")
    ignore_data_skip: bool = switch("Do not skip the data already seen when resuming.")
    restore_callback_states_from_checkpoint: bool = switch("Restore callbacks when resuming.")
    do_train: bool = switch("Read by the script.")
    do_eval: bool = switch("Read by the script; true when eval_strategy is not no.")
    do_predict: bool = switch("Read by the script.")


class Evaluation(Section):
    """Evaluation."""

    eval_strategy: Interval = text('When to evaluate. Write "no" in quotes: the bare word is False.')
    eval_steps: float | None = number("Distance of evaluations; default: logging_steps.", unit="steps or fraction")
    eval_delay: float = number("Steps or epochs before the first evaluation.")
    per_device_eval_batch_size: int = integer("Samples of one rank in one forward pass.", unit="samples", ge=1)
    prediction_loss_only: bool = switch("Keep the loss alone.")
    eval_on_start: bool = switch("Evaluate before training.")
    eval_do_concat_batches: bool = switch("Join the batches of predictions.")
    eval_use_gather_object: bool = switch("Gather nested objects.")
    eval_accumulation_steps: int | None = integer("Steps after which predictions move to the host.", unit="steps")
    # A list is made anew for each object, so that the walk knows no default.
    include_for_metrics: list[str] = items("Further inputs of compute_metrics.", default=[])
    batch_eval_metrics: bool = switch("Compute metrics batch by batch.")


class Logging(Section):
    """Logging and the Hub."""

    logging_strategy: Interval = text('When to log. Write "no" in quotes: the bare word is False.')
    logging_steps: float = number("Distance of log lines; not 0.", unit="steps or fraction")
    logging_first_step: bool = switch("Log the first step too.")
    log_on_each_node: bool = switch("Log on every machine.")
    logging_nan_inf_filter: bool = switch("Leave NaN and infinity out of the logged loss.")
    include_num_input_tokens_seen: Literal["no", "all", "non_padding"] | bool = switch("Count input tokens.")
    log_level: LogLevel = text("Log level of rank 0.")
    log_level_replica: LogLevel = text("Log level of the other ranks.")
    disable_tqdm: bool | None = optional_switch("No progress bar.")
    report_to: str | list[str] | None = text("Experiment trackers.")
    run_name: str | None = text("Name of the run for trackers.")
    project: str = text("Name of the project for trackers.")
    trackio_space_id: str | None = text("Trackio.")
    trackio_bucket_id: str | None = text("Trackio.")
    trackio_static_space_id: str | Literal[False] | None = text("Trackio.")
    push_to_hub: bool = switch("Upload checkpoints.")
    hub_token: str | None = text("Token of the Hub; it does not belong in a file.")
    hub_private_repo: bool | None = optional_switch("Make the repository private.")
    hub_model_id: str | None = text("Name of the repository.")
    hub_strategy: Literal["end", "every_save", "checkpoint", "all_checkpoints"] = text("When to upload.")
    hub_always_push: bool = switch("Upload even while the last upload runs.")
    hub_revision: str | None = text("Branch to upload to.")
