"""Which releases the frameworks around the Trainer allow, by release of the framework.

From the metadata of their wheels on PyPI (``Requires-Dist``, for DeepSpeed that of the extra of this name); of axolotl
and ms-swift the last patch of a minor release. llamafactory 0.9.5 names no DeepSpeed.
"""

from __future__ import annotations

from collections.abc import Mapping

from zerocfg.catalog.versions import TOP, bounds, either, release, text

ALLOWED: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "llamafactory": {
        "0.7.1": {
            "deepspeed": ">=0.10.0,<=0.14.0",
            "accelerate": ">=0.27.2",
            "transformers": ">=4.37.2",
            "trl": ">=0.8.1",
        },
        "0.8.0": {
            "deepspeed": ">=0.10.0,<=0.14.0",
            "accelerate": ">=0.30.1",
            "transformers": ">=4.41.2",
            "trl": ">=0.8.6",
        },
        "0.8.1": {
            "deepspeed": ">=0.10.0,<=0.14.0",
            "accelerate": ">=0.30.1",
            "transformers": ">=4.41.2",
            "trl": ">=0.8.6",
        },
        "0.8.2": {"deepspeed": ">=0.10.0", "accelerate": ">=0.30.1", "transformers": ">=4.41.2", "trl": ">=0.8.6"},
        "0.8.3": {"deepspeed": ">=0.10.0", "accelerate": ">=0.30.1", "transformers": ">=4.41.2", "trl": ">=0.8.6"},
        "0.9.0": {
            "deepspeed": ">=0.10.0,<=0.14.4",
            "accelerate": ">=0.30.1,<=0.33.0",
            "transformers": ">=4.41.2,<=4.45.0",
            "trl": ">=0.8.6,<=0.9.6",
        },
        "0.9.1": {
            "deepspeed": ">=0.10.0,<=0.14.4",
            "accelerate": ">=0.34.0,<=1.0.1",
            "transformers": ">=4.41.2,<=4.46.1",
            "trl": ">=0.8.6,<=0.9.6",
        },
        "0.9.2": {
            "deepspeed": ">=0.10.0,<=0.16.4",
            "accelerate": ">=0.34.0,<=1.2.1",
            "transformers": ">=4.41.2,<=4.49.0",
            "trl": ">=0.8.6,<=0.9.6",
        },
        "0.9.3": {
            "deepspeed": ">=0.10.0,<=0.16.9",
            "accelerate": ">=0.34.0,<=1.7.0",
            "transformers": ">=4.45.0,<=4.52.4,!=4.46.*,!=4.47.*,!=4.48.0,!=4.52.0",
            "trl": ">=0.8.6,<=0.9.6",
        },
        "0.9.4": {
            "deepspeed": ">=0.10.0,<=0.16.9",
            "accelerate": ">=1.3.0,<=1.11.0",
            "transformers": ">=4.51.0,<=4.57.1,!=4.52.0,!=4.57.0",
            "trl": ">=0.18.0,<=0.24.0",
        },
        "0.9.5": {
            "accelerate": ">=1.3.0,<=1.11.0",
            "transformers": ">=4.55.0,<=5.6.0,!=4.52.0,!=4.57.0",
            "trl": ">=0.18.0,<=0.24.0",
        },
    },
    "axolotl": {
        "0.5.2": {"deepspeed": "==0.15.4", "accelerate": "==1.1.0", "transformers": "==4.46.3", "trl": "==0.12.0"},
        "0.6.0": {"deepspeed": "==0.16.1", "accelerate": "==1.2.0", "transformers": ">=4.46.3", "trl": "==0.12.1"},
        "0.7.0": {"deepspeed": "==0.16.1", "accelerate": "==1.3.0", "transformers": "==4.48.3", "trl": "==0.15.0"},
        "0.8.1": {"deepspeed": "==0.15.4", "accelerate": "==1.6.0", "transformers": "==4.51.0", "trl": "==0.16.1"},
        "0.9.2": {"deepspeed": "==0.15.4", "accelerate": "==1.6.0", "transformers": "==4.51.3", "trl": "==0.17.0"},
        "0.10.0": {"deepspeed": "==0.17.0", "accelerate": "==1.7.0", "transformers": "==4.52.3", "trl": "==0.18.1"},
        "0.11.0": {"deepspeed": "==0.17.1", "accelerate": "==1.8.1", "transformers": "==4.53.1", "trl": "==0.18.2"},
        "0.12.2": {"deepspeed": "==0.17.2", "accelerate": "==1.10.0", "transformers": "==4.55.2", "trl": "==0.21.0"},
        "0.13.2": {"deepspeed": "==0.18.2", "accelerate": "==1.12.0", "transformers": "==4.57.6", "trl": "==0.27.0"},
        "0.14.0": {"deepspeed": "==0.18.2", "accelerate": "==1.12.0", "transformers": "==5.0.0", "trl": "==0.27.1"},
        "0.15.0": {"deepspeed": "==0.18.2", "accelerate": "==1.13.0", "transformers": "==5.3.0", "trl": "==0.29.0"},
        "0.16.1": {"deepspeed": "==0.18.2", "accelerate": "==1.13.0", "transformers": "==5.5.0", "trl": "==0.29.0"},
        "0.17.0": {
            "deepspeed": ">=0.18.6,<0.19.0",
            "accelerate": "==1.13.0",
            "transformers": "==5.9.0",
            "trl": "==1.5.1",
        },
        "0.18.0": {
            "deepspeed": ">=0.18.6,<0.19.0",
            "accelerate": "==1.13.0",
            "transformers": "==5.14.1",
            "trl": "==1.8.0",
        },
        "0.19.0": {
            "deepspeed": ">=0.18.6,<0.19.0",
            "accelerate": "==1.13.0",
            "transformers": "==5.16.1",
            "trl": "==1.9.0",
        },
    },
    "ms-swift": {
        "2.6.1": {"transformers": ">=4.33,<4.48", "trl": ">=0.11,<0.12"},
        "3.0.3": {"transformers": ">=4.33,<4.49", "trl": ">=0.11,<0.12"},
        "3.2.2": {"transformers": ">=4.33,<4.51", "trl": ">=0.13,<0.17"},
        "3.4.1": {"transformers": ">=4.33,<4.53", "trl": ">=0.13,<0.18"},
        "3.6.4": {"transformers": ">=4.33,<4.53", "trl": ">=0.15,<0.20"},
        "3.8.3": {"transformers": ">=4.33,<4.57", "trl": ">=0.15,<0.21"},
        "3.10.3": {"transformers": ">=4.33,<4.58", "trl": ">=0.15,<0.25"},
        "3.12.6": {"transformers": ">=4.33,<4.58", "trl": ">=0.15,<0.25"},
        "4.0.4": {"transformers": ">=4.33,<5.4.0", "trl": ">=0.15,<0.30"},
        "4.1.3": {"transformers": ">=4.33,<5.7.0", "trl": ">=0.15,<0.30"},
        "4.2.3": {"transformers": ">=4.33,<5.9.0", "trl": ">=0.15,<1.0"},
        "4.3.2": {"transformers": ">=4.33,<5.13.0", "trl": ">=0.15,<1.0"},
        "4.4.2": {"transformers": ">=4.33,<5.13.0", "trl": ">=0.15,<1.0"},
        "4.5.3": {"transformers": ">=4.33,<5.17.0", "trl": ">=0.15,<1.0"},
        "4.6.0": {"transformers": ">=4.33,<5.20.0", "trl": ">=0.15,<1.0"},
    },
}
PACKAGES = {"llamafactory": "llamafactory", "axolotl": "axolotl", "swift": "ms-swift"}
"""What is installed for a run of these readers."""


def allowed(package: str, declared: str | None, library: str) -> tuple[str, str] | None:
    """The clauses on a library of every admitted release of a framework together, and that release in words. Where
    nobody says which release it is, the newest known tells how far up the library may be, and none how far down.

    None where it says nothing, or no known release is admitted.
    """
    known = ALLOWED[package]
    if not declared:
        newest = list(known)[-1]
        clauses = _up_to(known[newest].get(library, ""))
        return (clauses, f"{package} up to {newest}") if clauses else None
    limits = bounds(declared)
    if limits is None:
        return None
    low, high, closed = limits
    admitted = [name for name in known if low <= (at := release(name)) and (at < high or (closed and at == high))]
    joined = either(known[name].get(library, "") for name in admitted) if admitted else None
    said = f"{package} {admitted[0] if len(admitted) == 1 else f'{admitted[0]} to {admitted[-1]}'}" if admitted else ""
    return (joined, said) if joined else None


def _up_to(clauses: str) -> str:
    limits = bounds(clauses) if clauses else None
    return f"<{'=' * limits[2]}{text(limits[1])}" if limits is not None and limits[1] != TOP else ""
