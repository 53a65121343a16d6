"""The server that imports the libraries once and forks the processes of each observation.

Run as a script. A request is a line of JSON on standard input: {"folder", "reports", "files", "consumer",
"until", "ranks", "limit", "disturb", "measure"}. The answer is a line on the descriptor that standard output had at the
start (the libraries print on standard output, so that is turned over to them): {"timed_out", "seconds"}.
What the processes saw is in ``reports``: launch.json, rank0.json, ... and the matching .log files.

One observation is one process group: a job process, which reads and launches, and the ranks that it forks.
When the time is up the whole group is killed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

OPERATORS = ("CPUAdamBuilder", "FusedAdamBuilder", "ShareMemCommBuilder")  # what DeepSpeed compiles on a CPU
GRACE = 5.0  # seconds that the other ranks get to end by themselves after one has failed
BASE = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CXX",
    "CC",
)


def main() -> None:
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    scratch = Path(sys.argv[1])
    environment = base_environment(scratch)
    os.environ.clear()
    os.environ.update(environment)
    tiny = prepare(scratch)
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(observe(json.loads(line), environment, tiny)) + "\n")
        answers.flush()


def base_environment(scratch: Path) -> dict[str, str]:
    """What every observation starts from: nothing of the caller's distributed or Hugging Face settings."""
    kept = {name: os.environ[name] for name in BASE if name in os.environ}
    return kept | {
        "DS_ACCELERATOR": "cpu",
        "TORCH_EXTENSIONS_DIR": operators(),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HOME": str(scratch / "hf"),  # no default_config.yaml of accelerate, no token
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "GLOO_SOCKET_IFNAME": "lo",
        "COLUMNS": "200",
    }


def operators() -> str:
    """Where the operators that DeepSpeed compiles are kept from one zygote to the next; used under a lock alone.

    Beside the folder of the other tests, not in it: a smoke-run whose rank was killed clears the locks there.
    """
    given = os.environ.get("TORCH_EXTENSIONS_DIR")
    root = Path(given) if given else Path(__file__).resolve().parents[2] / ".cache" / "torch_extensions"
    return str(root.with_name(f"{root.name}_proofs"))


def prepare(scratch: Path) -> str:
    """Import everything, compile DeepSpeed's CPU operators if that was never done, save the tiny model."""
    import accelerate.commands.accelerate_cli
    import deepspeed
    import torch
    import transformers
    import trl

    torch.set_num_threads(1)
    load_operators()
    # trl and transformers import lazily: touch here what every rank would otherwise import for itself
    _ = (trl.SFTConfig, trl.TrlParser, trl.ModelConfig, trl.ScriptArguments, transformers.Trainer)
    _ = (transformers.HfArgumentParser, accelerate.Accelerator, deepspeed.zero.Init)
    import torch._dynamo
    import transformers.integrations.deepspeed

    # 131072 elements in the embeddings and in each inner matrix: more than DeepSpeed's default persistence
    # threshold (100000), below which ZeRO-3 does not partition a parameter.
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=2048,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=2048,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    folder = scratch / "tiny"
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    transformers.AutoModelForCausalLM.from_pretrained(str(folder))
    return str(folder)


def load_operators() -> None:
    """Compile DeepSpeed's CPU operators where they are missing; never two processes at once."""
    from deepspeed.accelerator import get_accelerator

    with one_at_a_time():
        for builder in OPERATORS:
            get_accelerator().create_op_builder(builder).load(verbose=False)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold the lock of the folder of compiled operators and clear what killed compilations left in it.

    torch waits for ever for a lock file whose maker was killed. Whoever uses this folder does so under
    this lock, so that a lock file found in it has nobody behind it.
    """
    root = Path(os.environ["TORCH_EXTENSIONS_DIR"])
    root.mkdir(parents=True, exist_ok=True)
    with (root / "zygotes").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for stale in root.glob("**/lock"):
            stale.unlink()
        yield


def observe(request: dict[str, Any], environment: dict[str, str], tiny: str) -> dict[str, Any]:
    """Fork the job, wait for it, kill its process group at the end whatever happened."""
    start = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        enter(request, "launch", environment)
        from progress import leave

        leave(run_job(request, tiny))
    code = wait([job], start + request["limit"]).get(job)
    for _ in range(2):  # twice: a rank may have been forked between the first look and the kill
        try:
            os.killpg(job, signal.SIGKILL)
        except ProcessLookupError:
            break
    if code is None:
        os.waitpid(job, 0)
        with one_at_a_time():  # should it have been killed while it compiled
            pass
    return {"timed_out": code is None, "seconds": time.monotonic() - start}


def enter(request: dict[str, Any], name: str, environment: dict[str, str]) -> None:
    """Take on the example's folder, environment and log in a freshly forked process."""
    os.chdir(request["folder"])
    log = os.open(Path(request["reports"]) / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(environment)


def run_job(request: dict[str, Any], tiny: str) -> int:
    import launching
    from progress import Progress

    reports = Path(request["reports"])
    files, consumer, until = request["files"], request["consumer"], request["until"]
    progress = Progress(reports / "launch.json", until)
    launched: dict[str, Any] = {}
    with progress.watched():
        launching.read_files(progress, files, consumer)
        launched = launching.launch(progress, files)
    if progress.error or not launched:
        return 0
    alone = launched["kind"] == "process"
    ranks = 1 if alone else request["ranks"]
    progress.see("started", ranks)
    progress.write()
    port = free_port()
    children: dict[int, int] = {}
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            places = {} if alone else rendezvous(rank, ranks, port)
            enter(request, f"rank{rank}", launched["environment"] | places)
            from progress import leave

            leave(run_rank(request, rank, launched["script"], tiny))
        children[child] = rank
    codes = wait(list(children), None)
    (reports / "codes.json").write_text(json.dumps({children[child]: code for child, code in codes.items()}))
    return 0


def run_rank(request: dict[str, Any], rank: int, script: list[str], tiny: str) -> int:
    import worker
    from progress import Progress

    disturb = request.get("disturb") or {}
    disturb = disturb if disturb.get("rank") == rank else {}
    progress = Progress(
        Path(request["reports"]) / f"rank{rank}.json", request["until"], disturb, request.get("measure", ())
    )
    with progress.watched():
        worker.play(progress, request["consumer"], request["files"], script, tiny)
    if not progress.error and request["ranks"] > 1:
        see_the_others_off(request)
    return 1 if progress.error else 0


def see_the_others_off(request: dict[str, Any]) -> None:
    """Stay until every rank has come as far or failed: one that still connects would lose its partner."""
    reports = [Path(request["reports"]) / f"rank{rank}.json" for rank in range(request["ranks"])]
    deadline = time.monotonic() + GRACE
    while reports and time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            seen = json.loads(reports[-1].read_text())
            if seen.get("error") or seen.get("reached") == request["until"]:
                reports.pop()
                continue
        time.sleep(0.01)


def rendezvous(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What torchrun puts into the environment of one rank on one machine."""
    places = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": ranks,
        "LOCAL_WORLD_SIZE": ranks,
        "GROUP_RANK": 0,
    }
    fixed = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "none"}
    return {name: str(value) for name, value in places.items()} | fixed


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(children: list[int], deadline: float | None) -> dict[int, tuple[int, float]]:
    """Exit code and time (epoch) by process id; absent: not ended at ``deadline`` (monotonic) or GRACE
    after a failure."""
    codes: dict[int, tuple[int, float]] = {}
    while len(codes) < len(children):
        if deadline is not None and time.monotonic() >= deadline:
            break
        for child in children:
            if child not in codes:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    codes[child] = (os.waitstatus_to_exitcode(status), time.time())
                    if codes[child][0] != 0 and len(children) > 1:
                        deadline = min(deadline or float("inf"), time.monotonic() + GRACE)
        time.sleep(0.005)
    return codes


if __name__ == "__main__":
    main()
