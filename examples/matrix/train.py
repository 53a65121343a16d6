"""Supervised fine-tuning with TRL. Usage: train.py --config RECIPE.yaml [--option value ...]"""

from datasets import load_dataset
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser


def main() -> None:
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    script, arguments, model = parser.parse_args_and_config()
    arguments.model_init_kwargs = {"dtype": model.dtype, "attn_implementation": model.attn_implementation}
    trainer = SFTTrainer(
        model=model.model_name_or_path,
        args=arguments,
        train_dataset=load_dataset(script.dataset_name, split=script.dataset_train_split),
    )
    trainer.train()
    trainer.save_model()
    trainer.accelerator.wait_for_everyone()  # who leaves ends those who still save
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
