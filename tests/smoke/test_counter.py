"""The counter of collectives leaves alone what is not a collective: compiled code, operators of higher order."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from zerocfg.smoke.worker import communication
from zerocfg.smoke.worker.fence import Fence

pytestmark = pytest.mark.libs


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of this process alone."""
    import torch

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture(params=["kernels", "mode"])
def counter(request: pytest.FixtureRequest, group: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """By kernels, as with this torch, and by a mode, as with an older one."""
    monkeypatch.setattr(communication, "_with_kernels", lambda: request.param == "kernels")
    found = communication.Counter(Fence({}), on_card=False)
    found.start()
    yield found
    found.stop()


def reduced() -> None:
    import torch

    torch.distributed.all_reduce(torch.ones(64))


def test_what_is_between_start_and_stop_is_counted(counter: Any) -> None:
    reduced()
    reduced()
    counter.stop()
    reduced()
    kinds = counter.collectives()
    assert (kinds["all_reduce"]["calls"], kinds["all_reduce"]["payload"]) == (2, 2 * 64 * 4)
    counter.start()
    reduced()
    counter.stop()
    assert counter.collectives()["all_reduce"]["calls"] == 1, "it begins anew"


def test_this_torch_has_kernels() -> None:
    assert communication._with_kernels()


@pytest.mark.filterwarnings("ignore")
def test_operators_of_higher_order_run(counter: Any, request: pytest.FixtureRequest) -> None:
    """They do not under the mode, which is why it is the second choice."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    def run() -> None:
        tensor = torch.ones(64)
        chosen = torch.cond(tensor.sum() > 0, lambda one: one + 1, lambda one: one - 1, (tensor,))
        assert torch.equal(chosen, torch.full((64,), 2.0))
        queries = torch.ones(1, 1, 16, 16)
        assert torch.allclose(flex_attention(queries, queries, queries), queries)

    if "mode" in request.node.name:
        with pytest.raises(NotImplementedError):
            run()
    else:
        run()


def test_compiled_code_is_not_compiled_again(group: None) -> None:
    import torch

    compiled, ran = [], []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(1)

        def run(*arguments: Any) -> Any:
            ran.append(1)
            return graph.forward(*arguments)

        return run

    torch._dynamo.reset()
    function = torch.compile(lambda tensor: torch.relu(tensor) * 2, backend=backend)
    function(torch.ones(3))
    counter = communication.Counter(Fence({}), on_card=False)
    counter.start()
    function(torch.ones(3))
    counter.stop()
    function(torch.ones(3))
    torch._dynamo.reset()
    assert (len(compiled), len(ran)) == (1, 3)


def test_an_error_of_a_collective_is_the_callers(counter: Any) -> None:
    """And nothing of it is counted, nor held against the instrument."""
    import torch

    with pytest.raises((RuntimeError, ValueError)):
        torch.distributed.all_gather_into_tensor(torch.empty(3), torch.ones(2))
    counter.stop()
    assert not counter.fence.broken(communication.COUNTER)
