#!/usr/bin/env bash
# Starts the run sft-7b-l40s on 8xL40S. Written by zerocfg.
# Words given to it are handed on to the training script.
set -euo pipefail
cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")"/../..

exec accelerate launch --config_file built/sft-7b-l40s/accelerate.yaml \
  train.py --config recipe.yaml "$@"
