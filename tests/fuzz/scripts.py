"""Launch scripts as people write them, and as nobody should: made to be edited, and to be run with stubs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

_IN_COMMANDS = (
    "out",
    '"$NAME"',
    "$NAME",
    "${NAME}",
    '"${NAME}"',
    '"pre-$NAME-post"',
    "pre-${NAME}-post",
    '"a b"',
    "'x y'",
    r"a\ b",
    "$'t\\tq'",
    "$'it\\'s'",
    '"${NAME:-d f}"',
    "${OTHER:-d}",
    '"${OTHER:-it is}"',
    '"$(echo "z (" )"',
    "$(echo q)",
    "`echo q`",
    '"it\'s"',
    r'"say \"hi\""',
    "$((1+2))",
    '"$1"',
    "$2",
    '"#no"',
    "a#b",
    "{a,b}",
    '"$GLOB"',
    "x=y",
    '""',
    '"(" ',
    r"\"",
    "é",
)
_IN_TEXTS = ("out", "$NAME", "${NAME}", "pre-$NAME-post", "${OTHER:-d}", "$(echo q)", "$((1+2))", "$2", "x=y", "'q'")
_IN_SINGLE = ("out", "$NAME", "x=y", "a#b", '"q"')
_NAMES = ("--output_dir", "--run_name", "--logging_dir", "--hub_model_id", "--resume_from_checkpoint")
_NEUTRAL = (
    "# don't ( do \" this\n",
    "echo \"a ' b ( # c\" 'd \" e'\n",
    "((count = 1 << 2))\n",
    "for ((i = 0; i < 2; i++)); do echo $i; done\n",
    "cat > notes.txt <<EOF\nit's ( \" $NAME\naccelerate launch train.py --output_dir here --run_name x\nEOF\n",
    "cat <<-'END' > more.txt\n\tdon't $NAME \\\n\tEND\n",
    "TEXT=$(cat <<EOF\nit's (\nEOF\n)\n",
    'case $NAME in\n  a*|b) echo one ;;\n  (c) echo two;;\n  *) echo ")" ;;\nesac\n',
    'if [[ $NAME =~ ^(a|b)$ && -n "$1" ]]; then echo "it\'s"; fi\n',
    'COUNT=$(( ${#NAME} + 2 )); LIST=(1 2 "3 4") # ) \'\n',
    'python eval.py "${LIST[@]}" --x ${COUNT:-0}\n',
    "true && { echo a; } || (echo b)\n",
    'while read -r line; do python each.py "$line"; done <<< \'one "two\'\n',
    "python - <<'PY'\nprint(\"it's (\")\nPY\n",
    "export WANDB_MODE=offline; unset NOTHING\n",
    "python a.py 2>&1 | tee log &\n",
    "\n\n",
    "let n=1+2\n",
    "f() { python inner.py \"$@\"; }\nf a 'b c'\n",
)


def script(random: Random) -> str:
    """A launch script. Every word that no edit is about is one of its own or a value with quotes and variables."""
    indent = random.choice(("  ", "    ", "\t"))
    parts = ["#!/bin/bash\n"] if random.random() < 0.7 else []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        parts += random.sample(_NEUTRAL, random.choice((0, 1, 2, 4)))
        parts.append(random.choice(_FORMS)(random, indent))
    parts += random.sample(_NEUTRAL, random.choice((0, 0, 1, 3)))
    text = "".join(parts) + "wait\n"
    if random.random() < 0.1:
        text = text.rstrip("\n")
    return text.replace("\n", "\r\n") if random.random() < 0.15 else text


def _option(random: Random, values: tuple[str, ...]) -> list[str]:
    """One option as words of the script."""
    kind = random.random()
    if kind < 0.15:
        return [random.choice(("--bf16", "--do_train"))]
    if kind < 0.25:
        return [random.choice(_FAULTS)]
    name, value = random.choice(_NAMES), random.choice(values).strip()
    return [f"{name}={value}"] if random.random() < 0.15 else [name, value]


_FAULTS = (
    "--evaluation_strategy no",
    "--logging_strategie steps",
    "--overwrite_output_dir",
    "--no_cuda",
    "--tf32 True",
    "--save_safetensors True",
    "--per_gpu_train_batch_size 2",
    "--group_by_length",
    "--warmup_ratio 0.1",
    "--num_processes 2",
    "--deepspeed ds.json",
)
"""Options that the newest releases do not have, that nobody has, or that stand where they should not."""


def _options(random: Random, values: tuple[str, ...]) -> list[str]:
    return [word for _ in range(random.choice((1, 2, 3, 5))) for word in _option(random, values)]


def _start(random: Random) -> str:
    return random.choice(
        (
            "accelerate launch",
            "accelerate launch --num_cpu_threads_per_process 4 --config_file acc.yaml",
            "accelerate launch --num_proceses 2",
            "accelerate launch --num_processes 2 --mixed_precison bf16",
            "torchrun --nproc_per_node 2",
            "torchrun --nnodes 2 --rdzv_backend c10d --master_addr $HOST --master_port 29500 --nproc_per_node 2",
            "python -m torch.distributed.launch --use_env --nproc_per_node 2",
            "python3 -m torch.distributed.launch --nproc_per_node=2",
            "deepspeed --num_gpus 2",
            "deepspeed",
            "python",
            "OMP_NUM_THREADS=1 accelerate launch",
            "accelerate launch --multi_gpu --config_file acc.yaml",
        )
    )


def _joined(random: Random, words: list[str], indent: str) -> str:
    """Words on a line, or on several that are continued."""
    between = random.choice((" ", " ", f" \\\n{indent}", f"\\\n{indent}", "  ", "\t"))
    return "".join(f"{between}{word}" for word in words)


def _behind(random: Random) -> str:
    return random.choice(
        ("\n", "\n", "\n", " &\n", " | tee log\n", " > log 2>&1\n", " # it's (\n", ";\n", " && echo ok\n")
    )


def _plain(random: Random, indent: str) -> str:
    words = _options(random, _IN_COMMANDS)
    return f"{_start(random)} train.py{_joined(random, words, indent)}{_behind(random)}"


def _array(random: Random, indent: str) -> str:
    words = _options(random, _IN_COMMANDS)
    head = random.choice(("train.py", ""))
    style = random.random()
    if style < 0.4:
        body = f"({' '.join([head, *words]).strip()})"
    else:
        notes = ("", "", "  # it's (", " #)")
        lines = "".join(f"{indent}{word}{random.choice(notes)}\n" for word in ([head] if head else []) + words)
        body = f"(\n{lines})" if style < 0.8 else f"( # don't\n{lines} )"
    more = f"ARGS+=({' '.join(_options(random, _IN_COMMANDS))})\n" if random.random() < 0.3 else ""
    use = random.choice(('"${ARGS[@]}"', '"${ARGS[@]}"', "${ARGS[@]}"))
    last = random.choice(("", "", "", ' "$@"', " --run_name last", ' "$NAME"'))
    show = random.choice(("", "", 'echo "${ARGS[@]}"\n', 'python other.py "${ARGS[@]}"\n'))
    return f"ARGS={body}\n{more}{show}{_start(random)} {'' if head else 'train.py '}{use}{last}{_behind(random)}"


def _text(random: Random, indent: str) -> str:
    if random.random() < 0.25:
        quote, words = "'", _options(random, _IN_SINGLE)
    else:
        quote, words = '"', _options(random, _IN_TEXTS)
    between = random.choice((" ", " ", "\n" + indent, f" \\\n{indent}" if quote == '"' else " "))
    body = between.join(words)
    edge = random.choice(("", "", " ", "\n", between))
    more = f'ARGS+=" {" ".join(_options(random, _IN_TEXTS))}"\n' if random.random() < 0.3 else ""
    more += 'ALL="$ARGS --seed 1"\n' if random.random() < 0.2 else ""
    use = "$ALL" if "ALL=" in more else random.choice(("$ARGS", "${ARGS}", '"$ARGS"', "$ARGS$OTHER"))
    show = random.choice(("", "", 'echo "run: $ARGS"\n', "python other.py $ARGS\n"))
    last = random.choice(("", "", "", ' "$@"', " --run_name last"))
    return f"ARGS={quote}{edge}{body}{edge}{quote}\n{more}{show}{_start(random)} train.py {use}{last}{_behind(random)}"


def _whole_command(random: Random, indent: str) -> str:
    start = _start(random).replace("OMP_NUM_THREADS=1 ", "")
    way = random.choice(("array", "eval", "split", "shell", "single", "srun", "nohup", "env"))
    if way == "array":
        words = " ".join(_options(random, _IN_COMMANDS))
        return f'CMD=({start} train.py {words})\n"${{CMD[@]}}"{_behind(random)}'
    if way in ("nohup", "srun", "env"):
        wrap = {"nohup": "nohup", "srun": 'srun --jobid "$NAME"', "env": "env -u NAME"}[way]
        words = " ".join(_options(random, _IN_COMMANDS))
        return f"{wrap} {start} train.py {words} &\n"
    if way == "single":
        return f"bash -c '{start} train.py {' '.join(_options(random, _IN_SINGLE))}'{_behind(random)}"
    words = " ".join(_options(random, _IN_TEXTS))
    if way == "shell":
        quoted = random.choice(("", ' --run_name \\"x y\\"', " --hub_model_id \\$NAME"))
        return f'bash -c "{start} train.py {words}{quoted}"{_behind(random)}'
    use = 'eval "$CMD"' if way == "eval" and random.random() < 0.5 else "eval $CMD" if way == "eval" else "$CMD"
    return f'CMD="{start} train.py {words}"\necho "$CMD"\n{use}{_behind(random)}'


def _within(random: Random, indent: str) -> str:
    """A launch in a compound command."""
    inner = random.choice((_plain, _array, _text))(random, indent)
    around = random.choice(
        (
            "for NAME in one 'two three'; do\n{}done\n",
            'run() {{\n{}}}\nrun "a b" c\n',
            "function go {{\n{}}}\ngo\n",
            'if true; then\n{}else\necho "it\'s"\nfi\n',
            "case $1 in\n  first*)\n{};;\n  *) echo no ;;\nesac\n",
            "(\n{})\n",
            "{{\n{}}}\n",
            "for ((k=0; k<2; k++))\ndo\n{}done\n",
        )
    )
    return around.format(inner)


_FORMS: tuple[Callable[[Random, str], str], ...] = (_plain, _array, _array, _text, _text, _whole_command, _within)
