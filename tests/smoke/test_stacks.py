"""Where a hanging rank waits: dumps of several threads, made ones and those of real processes."""

from __future__ import annotations

import pytest

from zerocfg.smoke.launch.stacks import parse, shown

from .test_faults import hang

SITE = "/venv/lib/python3.12/site-packages"
MAIN = f"""  File "{SITE}/torch/autograd/graph.py", line 979 in _engine_run_backward
  File "{SITE}/torch/autograd/__init__.py", line 395 in backward
  File "{SITE}/torch/_tensor.py", line 623 in backward
  File "{SITE}/deepspeed/runtime/engine.py", line 3153 in backward
  File "/home/me/train.py", line 30 in train
  File "/home/me/train.py", line 40 in <module>
"""
AUTOGRAD = f"""Thread 0x00007f0900000001 (most recent call first):
  File "{SITE}/torch/distributed/distributed_c10d.py", line 3000 in all_reduce
  File "{SITE}/torch/distributed/c10d_logger.py", line 81 in wrapper
  File "{SITE}/deepspeed/comm/comm.py", line 500 in all_reduce
  File "{SITE}/deepspeed/runtime/zero/stage_1_and_2.py", line 1600 in reduce_gradients
"""
LOADER = f"""Thread 0x00007f0900000002 (most recent call first):
  File "{SITE}/torch/utils/data/_utils/pin_memory.py", line 40 in do_one_step
  File "/usr/lib/python3.12/threading.py", line 982 in run
  File "/usr/lib/python3.12/threading.py", line 1045 in _bootstrap_inner
  File "/usr/lib/python3.12/threading.py", line 1002 in _bootstrap
"""
IDLE = """Thread 0x00007f0900000003 (most recent call first):
  <no Python frame>
"""
CURRENT = "Current thread 0x00007f0900000000 (most recent call first):\n"
NAMED = "Thread 0x00007f0900000000 [python] (most recent call first):\n"
"""As Python 3.14 writes it."""

REDUCES = [
    "torch/distributed/distributed_c10d.py:3000 in all_reduce",
    "deepspeed/comm/comm.py:500 in all_reduce",
    "deepspeed/runtime/zero/stage_1_and_2.py:1600 in reduce_gradients",
]
WAITS = [
    "torch/autograd/graph.py:979 in _engine_run_backward",
    "torch/autograd/__init__.py:395 in backward",
    "torch/_tensor.py:623 in backward",
    "deepspeed/runtime/engine.py:3153 in backward",
    "/home/me/train.py:30 in train",
    "/home/me/train.py:40 in <module>",
]


@pytest.mark.parametrize("heading", [CURRENT, NAMED])
@pytest.mark.parametrize("others", [LOADER + AUTOGRAD + IDLE, IDLE + AUTOGRAD, AUTOGRAD + LOADER])
def test_a_backward_pass_is_shown_where_it_is_computed(heading: str, others: str) -> None:
    frames = parse(f"{others}\n{heading}{MAIN}")
    assert frames == REDUCES + WAITS
    assert shown(frames) == " < ".join([*REDUCES, WAITS[0], WAITS[4]]), "and where the user called it"


@pytest.mark.parametrize("others", ["", LOADER, IDLE, LOADER + IDLE])
def test_the_main_thread_is_shown_where_no_other_computes(others: str) -> None:
    assert parse(f"{others}\n{CURRENT}{MAIN}") == WAITS


def test_the_main_thread_is_shown_where_it_does_not_wait_for_autograd() -> None:
    main = f'  File "{SITE}/torch/distributed/distributed_c10d.py", line 9 in barrier\n  File "train.py", line 3 in f\n'
    assert parse(AUTOGRAD + "\n" + CURRENT + main) == [
        "torch/distributed/distributed_c10d.py:9 in barrier",
        "train.py:3 in f",
    ]


def test_a_hook_of_the_main_thread_is_its_innermost_frame() -> None:
    hook = '  File "/home/me/train.py", line 7 in hook\n'
    assert parse(AUTOGRAD + "\n" + CURRENT + hook + MAIN) == ["/home/me/train.py:7 in hook", *WAITS]


def test_of_two_computing_threads_the_one_that_waits_for_the_other_comes_second() -> None:
    """A backward pass inside a hook, as reentrant checkpointing begins it."""
    inner = f'''Thread 0x00007f0900000009 (most recent call first):
  File "{SITE}/torch/autograd/graph.py", line 979 in _engine_run_backward
  File "{SITE}/torch/utils/checkpoint.py", line 300 in backward
'''
    assert parse(f"{inner}{AUTOGRAD}\n{CURRENT}{MAIN}") == REDUCES + WAITS


def test_dumps_without_threads_or_frames() -> None:
    one = f"Stack (most recent call first):\n{MAIN}"
    assert parse(one) == WAITS, "of one thread"
    assert parse("") == [] and parse(IDLE) == []


BACKWARD = """
import ctypes, queue, threading
import torch
def reduce_gradients():
    time.sleep(1)
    other_ranks()
entry = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: reduce_gradients())
def start(_):
    ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, entry, None)
def train():
    threading.Thread(target=queue.SimpleQueue().get, daemon=True).start()
    doubled = torch.ones(1, requires_grad=True) * 2
    doubled.register_hook(start)
    doubled.register_hook(queue.SimpleQueue().get)
    doubled.sum().backward()
train()
"""
"""A thread that Python did not start computes, while the main thread waits in the engine without a frame of Python,
as with autograd's thread of a card."""


@pytest.mark.libs
def test_a_real_thread_that_computes_a_backward_pass() -> None:
    outcome = hang(BACKWARD, ranks=1)
    assert outcome.kind == "time"
    (told,) = outcome.detail
    assert "rank 0 waits in " in told and "in other_ranks < " in told and "in reduce_gradients" in told
    assert told.rpartition(" < ")[2].endswith(" in train"), "the user's own call"


@pytest.mark.libs
def test_a_real_hook_that_blocks() -> None:
    """On a processor autograd computes in the thread that called it."""
    outcome = hang(
        """
import torch
def block(gradient):
    other_ranks()
doubled = torch.ones(1, requires_grad=True) * 2
doubled.register_hook(block)
doubled.sum().backward()
""",
        ranks=1,
    )
    (told,) = outcome.detail
    assert "in other_ranks < " in told and "in block < torch/autograd/graph.py" in told
