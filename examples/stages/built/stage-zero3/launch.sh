#!/usr/bin/env bash
# Starts the run stage-zero3 on 2xCPU. Written by zerocfg.
# Words given to it are handed on to the training script.
set -euo pipefail
cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")"/../..

exec accelerate launch --config_file built/stage-zero3/accelerate.yaml \
  ../quickstart/train.py recipe.yaml "$@"
