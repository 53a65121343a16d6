"""The command lines of the launchers: which options stand alone, and where the training script begins.

Data and reading of words only. The tables follow the argparse parsers of accelerate 1.15, torch 2.13 and
DeepSpeed 0.19; tests compare them with the installed ones, and accelerate's with each release that was walked.
"""

from __future__ import annotations

import re
from typing import Literal

from zerocfg.record import record
from zerocfg.source.launch.line import Option, Word
from zerocfg.source.launch.programs import NONE, Programs, spelled
from zerocfg.source.text import Span

Launcher = Literal["accelerate", "deepspeed", "torchrun", "python"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


@record(frozen=True)
class Grammar:
    """``flags`` stand alone, ``valued`` take one value; written with underscores.

    ``abbreviates``: a prefix of a name will do.
    """

    flags: frozenset[str]
    valued: frozenset[str] = frozenset()
    abbreviates: bool = False
    module: frozenset[str] = frozenset(("-m", "--module"))

    def takes_value(self, name: str) -> bool | None:
        """None: the option is not known."""
        name = spelled(name)
        if name in self.flags:
            return False
        if name in self.valued:
            return True
        if self.abbreviates and name.startswith("--"):
            found = {full in self.valued for full in self.flags | self.valued if full.startswith(name)}
            if len(found) == 1:
                return found.pop()
        return None

    def is_module(self, name: str) -> bool:
        name = spelled(name)
        return name in self.module or (
            self.abbreviates and len(name) > 3 and any(full.startswith(name) for full in self.module)
        )


GRAMMARS: dict[str, Grammar] = {
    "accelerate": Grammar(
        _names(
            """-h --help -q --quiet --cpu --multi_gpu --tpu --enable_cpu_affinity --dynamo_use_fullgraph
        --dynamo_use_dynamic --dynamo_use_regional_compilation --use_deepspeed --use_fsdp
        --use_parallelism_config --use_megatron_lm --same_network -m --module --no_python --tpu_cluster
        --no_tpu_cluster --tpu_use_sudo --downcast_bf16 --fp8_use_autocast_during_eval --debug"""
        )
        # Flags of earlier releases.
        | {"--fp16", "--ipex", "--use_xpu", "--use_tp", "--mps", "--use_mps_device"}
    ),
    "torchrun": Grammar(
        # --use_env: torch.distributed.launch only.
        _names("-h --help --standalone -m --module --no_python --run_path --virtual_local_rank --use_env"),
        _names(
            """--nnodes --nproc_per_node --rdzv_backend --rdzv_endpoint --rdzv_id --rdzv_conf --max_restarts
        --monitor_interval --start_method --event_log_handler --role --log_dir -r --redirects -t --tee
        --local_ranks_filter --duplicate_stdout_filters --duplicate_stderr_filters --node_rank
        --master_addr --master_port --local_addr --logs_specs --numa_binding --signals_to_handle
        --shutdown_timeout"""
        ),
        abbreviates=True,
    ),
    "deepspeed": Grammar(
        _names(
            """-h --help --module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid
        --bind_cores_to_rank -q --quiet"""
        ),
        _names(
            """-H --hostfile -i --include -e --exclude --num_nodes --num_gpus --num_accelerators --master_port
        --master_addr --node_rank --launcher --launcher_args --enable_each_rank_log --autotuning
        --bind_core_list --ssh_port --venv_script --log_level"""
        ),
        abbreviates=True,
        module=frozenset(("--module",)),
    ),
    "python": Grammar(
        _names("""-u -O -OO -B -E -s -S -I -i -v -q -b -d -x -P"""),
        frozenset(("-X", "-W")),
    ),
}

_MODULES: dict[str, Launcher] = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
}
_ACCELERATE_CLI = ("accelerate.commands.accelerate_cli", "accelerate")

# Programs that run the command given as their arguments, and words that may stand before a command.
WRAPPERS = _names(
    """sudo nohup exec time command env srun mpirun mpiexec nsys ncu numactl taskset timeout nice
        ionice stdbuf setsid setarch xvfb-run poetry uv uvx pipenv pdm rye pixi hatch conda mamba
        micromamba singularity apptainer docker podman nvidia-docker enroot screen tmux ssh script
        strace py-spy memray scalene coverage unbuffer ts chronic builtin noglob runai flock watch xargs
        ssubmit clearml-task wandb op dotenv"""
)
# Of those, the ones that do much else besides running a command.
RUNNERS = _names(
    """poetry uv pipenv pdm rye pixi hatch conda mamba micromamba singularity apptainer docker podman
        nvidia-docker enroot"""
)
# Of those, the ones that run the first word behind their options as a program, even `NAME=value`. Played, but for
# srun: slurmstepd ends at execve(). `env`, `sudo` and the shell's `time` take an assignment there.
_EXECUTING = _names("srun nohup nice exec command stdbuf timeout taskset")
_WITH_ARGUMENT = _names("timeout taskset")
"""Those that take a word of their own before the program: a duration, a mask."""
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
OF_MACHINES = {
    "accelerate": ("--num_processes", "--num_machines", "--machine_rank", "--main_process_ip", "--main_process_port"),
    "deepspeed": ("--num_gpus", "--num_nodes", "--hostfile", "--include", "--master_addr"),
    "torchrun": ("--nproc_per_node", "--nnodes", "--node_rank", "--rdzv_backend", "--rdzv_endpoint", "--master_addr"),
}
"""Options that set the number of machines of a job and its rendezvous address."""
SHELLS = frozenset(("bash", "sh", "zsh", "dash", "ksh"))
_PYTHON = re.compile(r"(?:i?python|pypy)(?:[23](?:\.\d+)?)?$")


def program(word: Word) -> str:
    """The bare name of the program that a word calls, in whatever folder; "" when unknown."""
    if word.value is None:
        _, slash, last = word.text.rpartition("/")
        last = last.strip("\"'")
        return last if slash and last.isalnum() else ""
    return word.value.replace("\\", "/").rpartition("/")[2].removesuffix(".exe")


def head(words: list[Word], at: int, programs: Programs = NONE) -> tuple[str, int] | None:
    """The launcher, or front end, that the command at ``words[at]`` starts, and where its own arguments begin."""
    name = program(words[at])
    after = words[at + 1].value if at + 1 < len(words) else None
    if name == "accelerate":
        return ("accelerate", at + 2) if after == "launch" else None
    if name == "accelerate-launch":
        return "accelerate", at + 1
    if name in ("deepspeed", "deepspeed.pt"):
        return "deepspeed", at + 1
    if name == "torchrun":
        return "torchrun", at + 1
    if name in programs.own:
        launcher, commands = programs.own[name]
        if not commands:
            return (launcher, at + 1) if any(is_config(word) for word in words[at + 1 :]) else None
        return (launcher, at + 2) if after in commands else None
    if not _PYTHON.match(name):
        return None
    position = at + 1
    while position < len(words):
        option = words[position].value
        if option == "-m" and position + 1 < len(words):
            module = words[position + 1].value
            follows = words[position + 2].value if position + 2 < len(words) else None
            if module in _ACCELERATE_CLI:
                return ("accelerate", position + 3) if follows == "launch" else ("python", at + 1)
            started = _MODULES.get(module or "")
            return (started, position + 2) if started else ("python", at + 1)
        if not option or not option.startswith("-") or option in ("-c", "-"):
            break
        position += 2 if GRAMMARS["python"].takes_value(option) else 1
    return "python", at + 1


def assignment_as_program(words: list[Word], until: int) -> tuple[Word, Word] | None:
    """The program that takes ``NAME=value`` for what it is to run, and that word; of the words before ``until``."""
    for at in range(until):
        if program(words[at]) not in _EXECUTING:
            continue
        own = program(words[at]) in _WITH_ARGUMENT
        bare = False  # the word before is an option that may take this one as its value
        for word in words[at + 1 : until]:
            if not bare and _ASSIGNED.match(word.text):
                return words[at], word
            option = word.text.startswith("-")
            if program(word) in WRAPPERS or not (option or bare or own):
                break  # another program
            own = own and (option or bare)
            bare = option and "=" not in word.text
    return None


def split_launcher(launcher: str, words: list[Word]) -> tuple[tuple[Option, ...], Word | None, bool, tuple[Word, ...]]:
    """The launcher's own options, the script, whether the script is a module, and the script's words: all of them where
    a front end starts the training."""
    if launcher not in GRAMMARS:
        return (), None, False, tuple(words)
    grammar = GRAMMARS[launcher]
    options: list[Option] = []
    module = False
    at = 0
    while at < len(words):
        word = words[at]
        value = word.value
        if value == "--":
            at += 1
            break
        if value is None:
            if not word.text.startswith("-") and (options or _like_script(word.text)):
                # A lone variable before the script may hold any number of options.
                if _like_script(word.text) or not any(_like_script(w.value or w.text) for w in words[at + 1 :]):
                    break
                at += 1
                continue
            name, equals, rest = word.text.partition("=")
            if not equals and not name.startswith("-"):
                if any(_like_script(w.value or w.text) for w in words[at + 1 :]):
                    at += 1
                    continue
                break
            options.append(Option(name, _part(word, len(name) + 1, None), word.span, word.exact))
            at += 1
            continue
        if not value.startswith("-") or value == "-":
            break
        name, equals, rest = value.partition("=")
        if launcher == "python" and value == "-c":
            return tuple(options), None, False, tuple(words[at + 1 :])
        takes = grammar.takes_value(name)
        if equals:
            options.append(Option(name, _part(word, len(name) + 1, rest), word.span, word.exact))
        elif grammar.is_module(name):
            module = True
            options.append(Option(name, None, word.span, word.exact))
        elif takes or (takes is None and _takes_next(launcher, words, at)):
            follower = words[at + 1] if at + 1 < len(words) else None
            options.append(Option(name, follower, _join(word, follower), word.exact))
            at += 1
        else:
            options.append(Option(name, None, word.span, word.exact))
        at += 1
    if at >= len(words):
        return tuple(options), None, module, ()
    return tuple(options), words[at], module, tuple(words[at + 1 :])


def read_options(words: tuple[Word, ...]) -> tuple[Option, ...]:
    """A script's words as options; a value is the one word that follows and does not look like an option."""
    options: list[Option] = []
    at = 0
    while at < len(words):
        word = words[at]
        text = word.text if word.value is None else word.value
        if text.startswith("-") and not _negative_number(text) and text.strip("-"):
            name, equals, rest = text.partition("=")
            if equals:
                value = None if word.value is None else rest
                options.append(Option(name, _part(word, len(name) + 1, value), word.span, word.exact))
            elif at + 1 < len(words) and not option_like(words[at + 1]):
                options.append(Option(name, words[at + 1], _join(word, words[at + 1]), word.exact))
                at += 1
            else:
                options.append(Option(name, None, word.span, word.exact))
        at += 1
    return tuple(options)


def _takes_next(launcher: str, words: list[Word], at: int) -> bool:
    """Whether an option that is not in the table takes the next word."""
    if at + 1 >= len(words) or option_like(words[at + 1]):
        return False
    follower = words[at + 1]
    return not _like_script(follower.value or follower.text) and launcher != "python"


def like_script(word: Word) -> bool:
    """Whether the word is a script by its name, or might be one."""
    return word.value is None or _like_script(word.value)


def is_config(word: Word) -> bool:
    """Whether the word is the name of a config file, or an option that gives one."""
    return (word.text if word.value is None else word.value).strip("\"'").endswith((".yaml", ".yml", ".json"))


def _like_script(text: str) -> bool:
    return text.strip("\"'").endswith((".py", ".sh", ".pyc"))


def option_like(word: Word) -> bool:
    """Whether argparse takes a word for an option."""
    text = word.text if word.value is None else word.value
    return text.startswith("-") and not _negative_number(text) and len(text) > 1


def _negative_number(text: str) -> bool:
    return re.match(r"-\.?\d[\d.eE+-]*$", text) is not None


def _join(first: Word, last: Word | None) -> Span:
    end = last.span.end if last is not None and last.span.end >= first.span.end else first.span.end
    return Span(first.span.start, end)


def _part(word: Word, skip: int, value: str | None) -> Word:
    """The value of ``--name=value`` as a word of its own."""
    start = min(word.span.start + skip, word.span.end)
    if word.text[:skip].endswith("=") and len(word.text) == word.span.end - word.span.start:
        return Word(word.text[skip:], value, Span(start, word.span.end), word.exact)
    return Word(word.text, value, word.span, exact=False)
