"""GRPO with TRL and a reward for short answers in a box. Usage: train.py --config RECIPE.yaml [--option value ...]"""

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser


def boxed(completions, **_):
    """1 for a completion that states its answer in \\boxed{}, else 0."""
    texts = [one if isinstance(one, str) else one[-1]["content"] for one in completions]
    return [1.0 if "\\boxed{" in text else 0.0 for text in texts]


def main() -> None:
    parser = TrlParser((ScriptArguments, GRPOConfig, ModelConfig))
    script, arguments, model = parser.parse_args_and_config()
    arguments.model_init_kwargs = {"dtype": model.dtype, "attn_implementation": model.attn_implementation}
    trainer = GRPOTrainer(
        model=model.model_name_or_path,
        args=arguments,
        reward_funcs=boxed,
        train_dataset=load_dataset(script.dataset_name, split=script.dataset_train_split),
    )
    trainer.train()
    trainer.save_model()
    trainer.accelerator.wait_for_everyone()  # who leaves ends those who still save
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
