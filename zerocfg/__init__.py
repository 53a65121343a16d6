"""zerocfg: a compiler and linter for distributed-training configs.

The functions for Python programs are those of `zerocfg.api`, loaded when one is used.
"""

from __future__ import annotations

from zerocfg.version import __version__

TYPE_CHECKING = False
"""What type checkers take for true, without `typing`: importing that took a third of `zerocfg --version`."""

if TYPE_CHECKING:
    from zerocfg.api import (
        UNKNOWN,
        ConfigError,
        Diagnostic,
        Error,
        Origin,
        Result,
        Run,
        Setting,
        ValidationError,
        build,
        check_or_raise,
        effective,
        lint,
        load,
        plan,
        runs,
    )

__all__ = [
    "UNKNOWN",
    "ConfigError",
    "Diagnostic",
    "Error",
    "Origin",
    "Result",
    "Run",
    "Setting",
    "ValidationError",
    "__version__",
    "build",
    "check_or_raise",
    "effective",
    "lint",
    "load",
    "plan",
    "runs",
]


def __getattr__(name: str) -> object:
    """Load the functions when they are used: `zerocfg --version` and the command line need none of them."""
    if name in __all__:
        from zerocfg import api

        return getattr(api, name)
    raise AttributeError(f"module 'zerocfg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
