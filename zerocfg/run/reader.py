"""The consumer that reads the configs of a run, as its files show, and the evidence for it."""

from __future__ import annotations

from zerocfg.run.model import Consumer, Origin, ReaderEvidence, Run

# Options of the Hugging Face Trainer that no other training script is known to have, and some that loops of people's
# own have, too, but not beside per_device_train_batch_size: those of diffusers and of transformers' no_trainer examples
# share num_train_epochs, lr_scheduler_type, gradient_checkpointing and max_grad_norm.
_TRAINERS_ALONE = frozenset(
    "save_strategy eval_strategy evaluation_strategy logging_strategy save_total_limit remove_unused_columns do_train "
    "ddp_find_unused_parameters ddp_timeout load_best_model_at_end group_by_length save_only_model".split()
)
_BESIDE_BATCH_SIZE = frozenset("logging_steps save_steps eval_steps warmup_ratio bf16 fp16 tf32 optim".split())
# Recipe keys of TRL's script, model and trainer configs (beside TrainingArguments' own).
TRL_KEYS = frozenset(
    "dataset_name dataset_config dataset_mixture dataset_train_split attn_implementation torch_dtype dtype "
    "use_peft lora_r max_seq_length max_length packing num_generations max_completion_length max_prompt_length beta "
    "use_vllm reward_funcs chat_template".split()
)


def reader_of(run: Run) -> Consumer | None:
    """The consumer that finally reads the config, as the files show; None when they do not."""
    if run.script is not None and (run.script.reader or run.script.foreign):
        return run.script.reader
    arguments = run.arguments
    strict = run.script.strict_parser if run.script is not None else None
    option = {"engine": "deepspeed_config", "trainer": "deepspeed"}.get(run.deepspeed_route or "")
    if strict is not None and option in arguments and not strict.takes(f"--{option}"):
        return None  # the script stops before anything reads the config
    if option in arguments and run.script is not None and run.script.understood and not run.script.parsed:
        return None  # the script is here, and nothing in it reads what the option names
    if option in arguments and run.script is None and _is_of_page(run):
        return None  # an example of a script that is not here
    if run.deepspeed_route == "engine":
        return "deepspeed"
    if run.recipe is not None and run.recipe_reader == "trl":
        keys = run.recipe.data()
        return "trl" if isinstance(keys, dict) and TRL_KEYS & set(keys) else "transformers"
    understood = run.script is not None and run.script.understood
    if run.deepspeed_route == "trainer" or (run.recipe is not None and (run.recipe_reader or not understood)):
        return "transformers"
    if run.script is not None and run.script.options is not None and not run.script.parsed:
        return None  # options are a guess for scripts whose parser nobody can read
    sized = "per_device_train_batch_size" in arguments
    if _TRAINERS_ALONE & set(arguments) or (sized and _BESIDE_BATCH_SIZE & set(arguments)):
        return "transformers"
    return None


def _is_of_page(run: Run) -> bool:
    name = run.launch_file.name if run.launch_file is not None else ""
    return name.endswith((".md", ".ipynb"))


def reader_evidence(run: Run) -> ReaderEvidence | None:
    """What shows the consumer, and where; None where nothing does. A script may show a framework that is no consumer.

    Strongest first: the command line, the settings by path, a spec, the training script, what launch line and recipe
    show, and last the one consumer that the settings name for configs of which no file tells.
    """
    script = run.script
    if run.reader_evidence is not None:
        return run.reader_evidence
    if script is not None and (script.foreign if run.consumer is None else script.reader == run.consumer):
        return ReaderEvidence("script", script.shown_by)
    if run.consumer is None:
        return None
    arguments = run.arguments
    for name, route in (("deepspeed_config", "engine"), ("deepspeed", "trainer")):
        if run.deepspeed_route != route or name not in arguments:
            continue
        if run.launch is None or run.launch_file is None or arguments[name].origin.file is run.launch_file:
            return ReaderEvidence("option", arguments[name].origin)
    if run.recipe is not None:
        return ReaderEvidence("recipe")
    line = run.launch
    return ReaderEvidence("option", Origin("flag", file=run.launch_file, span=line.span) if line is not None else None)
