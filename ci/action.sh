#!/usr/bin/env bash
# What the GitHub Action runs: annotations in the log, a summary of the job, SARIF beside it.
# COMMAND, PATHS and ARGS are the action's inputs; GITHUB_* and RUNNER_TEMP come from the runner.
set -uo pipefail

# The inputs are lists of words, as on a command line, on one line or several.
read -r -d '' -a paths <<<"${PATHS:-.}"
read -r -d '' -a args <<<"${ARGS:-}"

case "${COMMAND:-lint}" in
lint)
  sarif="${RUNNER_TEMP:-/tmp}/zerocfg.sarif"
  text="${RUNNER_TEMP:-/tmp}/zerocfg.txt"
  # An empty list counts as unset in the bash of macOS.
  zerocfg lint ${args[@]+"${args[@]}"} --output-format github --output-format "sarif=$sarif" --output-format "full=$text" \
    -- "${paths[@]}"
  code=$?
  if [ -f "$sarif" ]; then echo "sarif-file=$sarif" >>"${GITHUB_OUTPUT:-/dev/null}"; fi
  ;;
gate)
  text="${RUNNER_TEMP:-/tmp}/zerocfg.txt"
  # Nothing that stands in a config or a policy may be read as a command of the runner.
  token="zerocfg-$RANDOM$RANDOM$RANDOM"
  echo "::stop-commands::$token"
  zerocfg gate ${args[@]+"${args[@]}"} -- "${paths[@]}" | tee "$text"
  code=${PIPESTATUS[0]}
  echo "::$token::"
  if [ "$code" -eq 1 ]; then echo "::error title=zerocfg gate::There are reasons against; the summary of the job names them."; fi
  ;;
*)
  echo "::error::zerocfg: the input command is lint or gate, not '$COMMAND'"
  exit 2
  ;;
esac

if [ -f "$text" ]; then
  {
    echo "### zerocfg $COMMAND"
    echo
    # Six backticks begin and end the block, and in it no more than five stand together: nothing in it ends it.
    echo '``````text'
    # A step's summary may have 1 MiB.
    head -c 900000 "$text" | sed 's/``````*/`````/g'
    echo '``````'
  } >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
fi
exit "$code"
