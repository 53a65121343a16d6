#!/usr/bin/env bash
# Starts the run pretrain on 8xV100-32GB. Written by zerocfg.
# Words given to it are handed on to the training script.
set -euo pipefail
cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")"/../..

exec accelerate launch --config_file built/pretrain/accelerate.yaml \
  train.py recipe.yaml "$@"
