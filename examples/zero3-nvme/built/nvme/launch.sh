#!/usr/bin/env bash
# Starts the run nvme on 8xH100-80GB. Written by zerocfg.
# Words given to it are handed on to the training script.
set -euo pipefail
cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")"/../..

exec accelerate launch --config_file built/nvme/accelerate.yaml \
  train.py recipe.yaml "$@"
