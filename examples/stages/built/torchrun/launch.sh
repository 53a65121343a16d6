#!/usr/bin/env bash
# Starts the run torchrun on 2xCPU. Written by zerocfg.
# Words given to it are handed on to the training script.
set -euo pipefail
cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")"/../..

exec torchrun --standalone --nproc_per_node 2 \
  ../quickstart/train.py built/torchrun/recipe.yaml "$@"
