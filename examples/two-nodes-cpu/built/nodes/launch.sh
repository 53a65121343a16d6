#!/usr/bin/env bash
# Starts the run nodes on 2x1xCPU. Written by zerocfg.
# Words given to it are handed on to the training script.
set -euo pipefail
cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")"/../..

# Every node runs this script with its own rank; rank 0 is the one whose address the others get.
: "${MACHINE_RANK:?set MACHINE_RANK to the number of this node, 0 to 1}"
: "${MAIN_PROCESS_IP:?set MAIN_PROCESS_IP to the address of the node with MACHINE_RANK=0}"
case "$MACHINE_RANK" in
  ''|*[!0-9]*) echo "MACHINE_RANK must be a number from 0 to 1, not '$MACHINE_RANK'" >&2; exit 2 ;;
esac
if [ "$MACHINE_RANK" -gt 1 ]; then
  echo "MACHINE_RANK is $MACHINE_RANK, but this run has 2 nodes: 0 to 1" >&2; exit 2
fi

exec accelerate launch --config_file built/nodes/accelerate.yaml \
  --machine_rank "$MACHINE_RANK" --main_process_ip "$MAIN_PROCESS_IP" \
  --main_process_port "${MAIN_PROCESS_PORT:-29500}" \
  ../quickstart/train.py recipe.yaml "$@"
