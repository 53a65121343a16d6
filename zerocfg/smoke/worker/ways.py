"""Ways for several ranks to share one card; read by the parent too, which loads no training library."""

from __future__ import annotations

# Nothing but this machine's loopback is used, and few blocks of the card, so that the kernels of all ranks find room.
_SMALL = {"NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2"}
_LOOPBACK = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo"}
WAYS: dict[str, dict[str, str]] = {
    "nccl": {"NCCL_MULTI_RANK_GPU_ENABLE": "1", **_SMALL},
    "gloo": {},
    "nccl as hosts": {"NCCL_HOSTID": "rank{rank}", **_SMALL, **_LOOPBACK},
}
"""Ways for ranks to share a card, the best one first, each with its environment variables.

"nccl": NCCL from 2.30 on takes several ranks of a card when it is told so, and refuses them before ("Duplicate GPU
detected"). "gloo" copies through the host's memory. "nccl as hosts": each rank calls itself another host, so that NCCL
does not compare their cards, and they talk through sockets.
"""
