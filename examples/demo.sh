#!/usr/bin/env bash
# The main job in three steps: lint a repository with the mistakes that tutorials teach, build the fixed one,
# and train it for real. Started by `make demo`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

step() { printf '\n\033[1m== %s\033[0m\n\n' "$*"; }

step "1/3  zerocfg lint examples/pitfalls: what would crash, be ignored, or lose the weights"
zerocfg lint examples/pitfalls && { echo "the pitfalls were not found" >&2; exit 1; }

step "2/3  zerocfg build: the fixed run, every auto resolved with its reason"
zerocfg lint examples/quickstart
zerocfg build examples/quickstart/zerocfg.yaml -o out

step "3/3  zerocfg smoke: the emitted files under the real accelerate launch, ZeRO-3 on two CPU ranks"
zerocfg smoke out/quickstart --ranks 2 --device cpu --keep out/quickstart-weights
