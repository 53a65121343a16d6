#!/usr/bin/env bash
# Starts the run sft-7b-h100 on 8xH100-80GB. Written by zerocfg.
# Words given to it are handed on to the training script.
set -euo pipefail
cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")"/../..

exec accelerate launch --config_file built/sft-7b-h100/accelerate.yaml \
  train.py --config recipe.yaml "$@"
