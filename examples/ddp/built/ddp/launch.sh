#!/usr/bin/env bash
# Starts the run ddp on 4xA100-40GB. Written by zerocfg.
# Words given to it are handed on to the training script.
set -euo pipefail
cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")"/../..

exec accelerate launch --config_file built/ddp/accelerate.yaml \
  train.py recipe.yaml "$@"
