#!/usr/bin/env bash
set -euo pipefail

accelerate launch --config_file zero2.yaml ../quickstart/train.py \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --output_dir runs/zero2

accelerate launch --config_file zero3.yaml ../quickstart/train.py \
  --per_device_train_batch_size 4 --num_train_epochs 1 --bf16 false --output_dir runs/zero3
