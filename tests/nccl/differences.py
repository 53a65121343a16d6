"""Where gloo and NCCL, or a processor and a card, differ in what our code touches, and the test that plays each.

``python -m tests.nccl.differences`` writes docs/nccl-and-gloo.md from this list; `test_differences` holds both to the
code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .uses import ROOT

PAGE = "docs/nccl-and-gloo.md"
_WORKER, _PREFLIGHT, _MEASURING = "zerocfg/smoke/worker/", "zerocfg/preflight/", "zerocfg/hardware/measuring/"
_DOUBLE, _CARDS = "tests/nccl/test_double.py::", "tests/nccl/test_on_cards.py::"
_PROBE = "tests/nccl/test_measuring_on_cards.py::"


@dataclass(frozen=True)
class Difference:
    """One row.

    ``processor``: what gloo or a processor does; ``card``: what NCCL or a card does. ``touches``: functions of ours
    (``file:function``), each with what it uses of torch (`uses.Use`); empty where it is none of these names.
    ``tests``: those that play ``card``.
    """

    name: str
    processor: str
    card: str
    touches: dict[str, tuple[str, ...]]
    tests: tuple[str, ...]


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "Work of a synchronous collective",
        "gloo gives one, which is waited for",
        "NCCL gives None since torch 2.8",
        {
            _WORKER + "communication.py:_wait": ("distributed.Work",),
            _WORKER + "communication.py:_ranks": ("distributed.ProcessGroup",),
            _WORKER + "communication.py:_kernels": (),
        },
        (
            _DOUBLE + "test_a_synchronous_collective_gives_no_work_and_its_result",
            _DOUBLE + "test_a_counter_in_front_sees_what_nccl_gives",
        ),
    ),
    Difference(
        "Work of an asynchronous call",
        "the result comes by itself",
        "the stream of the caller has the result only after `wait`; a Work that is dropped orders nothing",
        {
            _WORKER + "sharing.py:collectives": ("async_op", "distributed.all_gather_into_tensor"),
            _PREFLIGHT + "measuring.py:Sweeps._exchange": ("distributed.isend", "distributed.irecv"),
            _PREFLIGHT + "measuring.py:Sweeps._collectives": ("distributed.isend", "distributed.irecv"),
        },
        (
            _DOUBLE + "test_a_result_is_there_when_its_work_was_waited_for",
            _DOUBLE + "test_a_work_that_is_dropped_leaves_no_result",
        ),
    ),
    Difference(
        "First call of a group",
        "an exchange concerns the two ranks that make it",
        "`batch_isend_irecv` as the first call of a group hangs unless all of its ranks make it",
        {
            _PREFLIGHT + "measuring.py:Sweeps._exchange": ("distributed.P2POp", "distributed.batch_isend_irecv"),
            _PREFLIGHT + "measuring.py:Sweeps._collectives": ("distributed.P2POp", "distributed.batch_isend_irecv"),
            _MEASURING + "collectives.py:Ranks.connect": (),
        },
        (
            _DOUBLE + "TestExchanges::test_as_the_first_call_without_all_ranks_they_hang",
            _DOUBLE + "TestExchanges::test_after_a_collective_some_ranks_are_enough",
            "tests/preflight/test_ranks.py::test_a_rank_that_never_comes",
        ),
    ),
    Difference(
        "Barrier",
        "no device is needed",
        "without `device_ids` the card is guessed by the number of the rank: another rank's where ranks share a card",
        {
            _WORKER + "group.py:barrier": ("distributed.barrier", "device_ids"),
            _WORKER + "sharing.py:collectives": ("distributed.barrier",),
        },
        (_DOUBLE + "TestOwnCode::test_what_nccl_does_not_take", _CARDS + "TestGroup::test_device_and_barrier"),
    ),
    Difference(
        "Tensors of the processor",
        "gloo takes them",
        "NCCL refuses them: `No backend type associated with device type cpu`; probe and preflight ask for gloo beside "
        "it and send what they only agree on by that",
        {
            _WORKER + "group.py:device": ("distributed.get_backend",),
            _WORKER + "group.py:total": ("distributed.all_reduce",),
            _WORKER + "sharing.py:collectives": (
                "distributed.all_gather",
                "distributed.all_reduce",
                "distributed.broadcast",
                "distributed.reduce",
                "distributed.reduce_scatter_tensor",
            ),
            _MEASURING + "collectives.py:Ranks.__init__": ("distributed.init_process_group",),
            _MEASURING + "collectives.py:Ranks.meet": ("distributed.all_reduce",),
            _MEASURING + "collectives.py:Ranks.all_reduce": ("distributed.all_reduce",),
            _MEASURING + "collectives.py:Ranks._least": ("distributed.all_reduce", "distributed.ReduceOp"),
            _MEASURING + "collectives.py:Ranks.seconds": ("distributed.all_reduce", "distributed.ReduceOp"),
            _PREFLIGHT + "measuring.py:Sweeps._agreed": ("distributed.broadcast",),
            _PREFLIGHT + "measuring.py:Sweeps._check_sum": ("distributed.all_reduce",),
            _PREFLIGHT + "measuring.py:Sweeps._collectives": ("distributed.all_gather",),
            _PREFLIGHT + "measuring.py:Sweeps._clocks": ("distributed.send", "distributed.recv"),
        },
        (
            _DOUBLE + "TestOwnCode::test_what_nccl_does_not_take",
            _DOUBLE + "TestOwnCode::test_what_it_takes",
            "tests/preflight/test_ranks.py::test_four_clean_ranks",
        ),
    ),
    Difference(
        "Collectives of objects",
        "their bytes stay in host memory",
        "torch moves them to the current card, unless the group has gloo as well",
        {
            _WORKER + "report.py:Report.exchange": ("distributed.all_gather_object",),
            _MEASURING + "collectives.py:Ranks.gather": ("distributed.all_gather_object",),
            _PREFLIGHT + "measuring.py:Sweeps.join": ("distributed.all_gather_object",),
            _PREFLIGHT + "measuring.py:Sweeps._suspects": ("distributed.gather_object",),
        },
        (
            _DOUBLE + "TestOwnCode::test_what_it_takes",
            "tests/preflight/test_ranks.py::test_called_once_on_each_node",
        ),
    ),
    Difference(
        "A partner that is gone",
        "gloo raises at once",
        "NCCL hangs, and its watchdog aborts the process when the patience of the group is over",
        {
            _MEASURING + "collectives.py:Ranks.new_group": ("distributed.new_group",),
            _MEASURING + "collectives.py:Ranks.close": ("distributed.destroy_process_group",),
            _WORKER + "sharing.py:main": ("distributed.destroy_process_group",),
        },
        (
            _DOUBLE + "TestErrors::test_a_partner_that_is_gone_is_waited_for_until_the_process_is_ended",
            "tests/preflight/test_ranks.py::test_a_rank_that_is_killed",
        ),
    ),
    Difference(
        "Errors of a collective",
        "the call itself raises",
        "a later call raises, when the card has come to it",
        {
            _WORKER + "sharing.py:main": ("cuda.synchronize",),
            _WORKER + "communication.py:_kernels": (),
        },
        (
            _DOUBLE + "TestErrors::test_an_error_comes_with_the_next_call",
            _CARDS + "TestGroup::test_the_trial_of_sharing_waits_for_the_card",
            _CARDS + "TestCollectives::test_a_card_in_error_costs_the_count",
        ),
    ),
    Difference(
        "Several ranks on one device",
        "every rank uses the processor",
        "NCCL takes several ranks of a card from 2.30 on and refuses them before; gloo copies through host memory",
        {
            _WORKER + "sharing.py:join": ("cuda.set_device", "distributed.init_process_group"),
            _WORKER + "sharing.py:main": ("cuda.nccl", "cuda.nccl.version", "distributed.init_process_group"),
        },
        (
            _CARDS + "TestGroup::test_ranks_that_share_a_card_all_use_the_first",
            "tests/smoke/test_sharing.py::test_the_first_way_that_works_is_taken",
        ),
    ),
    Difference(
        "Clocks",
        "when a call returns, its work is done",
        "work is queued: a clock is right only after the card has finished",
        {
            _MEASURING + "library.py:Device.wait": ("cuda.synchronize",),
            _MEASURING + "library.py:seconds_of": (),
            _PREFLIGHT + "measuring.py:Sweeps._window": (),
            _WORKER + "memory.py:Recorder.settle": ("cuda.synchronize",),
        },
        (_PROBE + "test_no_clock_is_read_while_the_card_works",),
    ),
    Difference(
        "Events",
        "time is read from a clock of the host",
        "an event in the stream has a time; `elapsed_time` raises before the card has finished",
        {
            _WORKER + "communication.py:Counter.now": ("cuda.Event",),
            _WORKER + "communication.py:Counter.collectives": (),
        },
        (_CARDS + "TestCollectives::test_seconds_are_those_between_events_once_the_card_has_finished",),
    ),
    Difference(
        "Errors of a card",
        "an exception belongs to the call that raises it",
        "an error of a kernel comes late and stays: every later call that asks the card raises it, but not the "
        "counters of the allocator",
        {
            _WORKER + "memory.py:Recorder._count": ("cuda.mem_get_info",),
            _WORKER + "memory.py:Recorder.settle": (),
        },
        (_CARDS + "TestMemory::test_after_an_error_of_the_card_the_counters_of_torch_go_on",),
    ),
    Difference(
        "Memory counters",
        "the kernel counts resident memory; nothing counts tensors",
        "the allocator counts by card, with peaks that are reset; the driver counts everything on the card, contexts "
        "included",
        {
            _WORKER + "memory.py:Recorder._count": ("cuda.max_memory_allocated", "cuda.max_memory_reserved"),
            _WORKER + "memory.py:Recorder._look": ("cuda.memory_allocated",),
            _WORKER + "memory.py:Recorder._reset": ("cuda.reset_peak_memory_stats",),
            _WORKER + "reference.py:_free": ("cuda.mem_get_info",),
            _MEASURING + "library.py:Device.free_bytes": ("cuda.mem_get_info",),
        },
        (
            _CARDS + "TestMemory::test_peaks_are_those_of_the_own_card_and_of_the_phase",
            _CARDS + "TestMemory::test_free_memory_is_that_of_the_own_card",
            _PROBE + "test_free_memory_is_that_of_the_card",
        ),
    ),
    Difference(
        "Memory that is only reserved",
        "freed memory goes back to the kernel",
        "the allocator keeps it until `empty_cache`",
        {_WORKER + "parts.py:release": ("cuda.empty_cache",)},
        (_CARDS + "TestMemory::test_releasing_gives_back_what_is_only_reserved",),
    ),
    Difference(
        "Counters of pinned memory",
        "nothing is pinned",
        "torch counts it from 2.6 on; older releases have no such functions",
        {
            _WORKER + "memory.py:Recorder._count": ("cuda.host_memory_stats",),
            _WORKER + "memory.py:Recorder._reset": ("cuda.reset_peak_host_memory_stats",),
        },
        (
            _CARDS + "TestMemory::test_torch_before_2_6_counts_no_pinned_memory",
            _CARDS + "TestMemory::test_pinned_memory_is_that_of_the_phase",
        ),
    ),
    Difference(
        "Pinned memory",
        "copies are plain",
        "copies to and from a card are asynchronous only from pinned memory, which `cudaHostAlloc` takes of the host",
        {_MEASURING + "rates.py:pinned_copies": ("pin_memory", "non_blocking")},
        (_PROBE + "test_copies_to_and_from_a_card_are_of_pinned_memory_and_asynchronous",),
    ),
    Difference(
        "Limits of memory",
        "a limit of the process, by the kernel",
        "`set_per_process_memory_fraction`: a share of one card, for the allocator alone",
        {
            _WORKER + "memory.py:limit": (
                "cuda.device_count",
                "cuda.get_device_properties",
                "cuda.set_per_process_memory_fraction",
            )
        },
        (_CARDS + "TestMemory::test_the_limit_is_a_share_of_the_own_card",),
    ),
    Difference(
        "Contexts",
        "a process has none",
        "what asks a card opens a context there, of some 0.5 GiB: on the first card, where the rank has not chosen its "
        "own before",
        {
            _WORKER + "memory.py:Recorder._torch": ("cuda.is_initialized",),
            _WORKER + "parts.py:release": ("cuda.is_available",),
            _MEASURING + "library.py:device_of": ("cuda.device_count", "cuda.is_available", "cuda.set_device"),
        },
        (
            _CARDS + "TestMemory::test_peaks_are_those_of_the_own_card_and_of_the_phase",
            _CARDS + "TestMemory::test_releasing_opens_no_context",
            _PROBE + "test_a_rank_takes_the_card_of_its_number_and_opens_no_other",
        ),
    ),
    Difference(
        "Forks",
        "a fork goes on",
        "a fork of a process that has initialised CUDA cannot use it: a zygote may import torch, and ask no card",
        {_WORKER + "memory.py:Recorder._torch": ()},
        (_CARDS + "TestMemory::test_in_a_fork_of_a_process_with_a_context_the_card_is_not_asked",),
    ),
    Difference(
        "Current device",
        "there is one",
        "each thread has its own; in a new thread it is the first card",
        {
            _WORKER + "memory.py:Recorder._torch": ("cuda.current_device",),
            _WORKER + "memory.py:Recorder._look": (),
            _WORKER + "group.py:device": ("cuda.current_device",),
            _WORKER + "device.py:see_device": ("cuda.current_device",),
        },
        (
            _CARDS + "TestMemory::test_the_thread_that_samples_looks_at_the_card_of_the_rank",
            _CARDS + "TestGroup::test_device_and_barrier",
        ),
    ),
    Difference(
        "Properties of a device",
        "the kernel names the processor",
        "names and capabilities are those of one card; ROCm has numbers of its own",
        {
            _WORKER + "device.py:see_device": ("cuda.get_device_name",),
            _MEASURING + "rates.py:_has_fp8": ("cuda.get_device_capability",),
            _MEASURING + "rates.py:_products": ("cuda.get_device_capability",),
            _MEASURING + "__main__.py:_xpu_devices": (
                "cuda.device_count",
                "cuda.get_device_properties",
                "cuda.is_available",
                "cuda.is_bf16_supported",
            ),
        },
        (
            _CARDS + "test_the_name_is_that_of_the_own_card",
            _PROBE + "test_fp8_is_tried_where_the_card_has_it",
            _PROBE + "test_devices_of_intel",
        ),
    ),
    Difference(
        "Weights of FSDP 1",
        "gloo gathers whole tensors in host memory",
        "NCCL gathers them on each rank's card, and every rank has to come",
        {
            _WORKER + "checksums.py:full": (
                "distributed.checkpoint.state_dict.StateDictOptions",
                "distributed.checkpoint.state_dict.get_model_state_dict",
            )
        },
        (_DOUBLE + "test_engines_train_on_it", "tests/smoke/test_runs.py::test_fsdp_shards_on_a_processor"),
    ),
    Difference(
        "Ranks and stores",
        "the store lies in host memory",
        "the same: what ranks vote on or look up there does not depend on the backend",
        {
            _WORKER + "group.py:size": ("distributed.get_world_size",),
            _WORKER + "group.py:_stands": ("distributed.is_available", "distributed.is_initialized"),
            _WORKER + "report.py:Report.exchange": ("distributed.get_world_size",),
            _WORKER + "sharing.py:collectives": ("distributed.get_rank", "distributed.get_world_size"),
            _WORKER + "sharing.py:main": ("distributed.is_initialized",),
            _WORKER + "votes.py:_store": ("distributed._get_default_store", "distributed.distributed_c10d"),
            _MEASURING + "collectives.py:Ranks.gather": ("distributed.get_world_size",),
            _PREFLIGHT + "meeting.py:Meeting.__init__": ("distributed.PrefixStore",),
            _PREFLIGHT + "meeting.py:_store": ("distributed.TCPStore",),
        },
        ("tests/preflight/test_ranks.py::test_a_rank_that_never_comes",),
    ),
)


def page() -> str:
    """The text of the page."""
    lines = [
        "# NCCL and gloo",
        "",
        "Smoke-runs, preflight and probe run on cards, and their tests on processors. This is the list of what differs "
        "between the two in what their code touches, and of the tests that play a card's side without a card: with a "
        "double of NCCL (`tests/nccl/double`: gloo with NCCL's manners, below torch's dispatcher), or with cards that "
        "only answer (`tests/nccl/fake_cuda.py`). Every smoke, preflight and probe test on several ranks runs with "
        "gloo and with that double (`tests/nccl/plugin.py`).",
        "",
        "The list is written from `tests/nccl/differences.py` by `python -m tests.nccl.differences`. A test holds it "
        "to the code: a use of `torch.cuda` or `torch.distributed` in no row fails.",
        "",
        "| what | on a processor, with gloo | on a card, with NCCL | touched by | played by |",
        "|---|---|---|---|---|",
    ]
    for row in DIFFERENCES:
        touched = ", ".join(f"`{place.removeprefix('zerocfg/')}`" for place in row.touches)
        played = ", ".join(f"`{test.removeprefix('tests/')}`" for test in row.tests)
        lines.append(f"| {row.name} | {row.processor} | {row.card} | {touched} | {played} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    Path(ROOT, PAGE).write_text(page(), encoding="utf-8")
