#!/usr/bin/env bash
# Starts the run lora on 2xRTX4090. Written by zerocfg.
# Words given to it are handed on to the training script.
set -euo pipefail
cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")"/../..

exec accelerate launch --config_file built/lora/accelerate.yaml \
  train.py --config recipe.yaml "$@"
