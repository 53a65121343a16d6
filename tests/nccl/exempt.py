"""Tests on several ranks that do not run with the double of NCCL, and why: it would show nothing that they look at."""

from __future__ import annotations

_ALWAYS = "its two ranks always have the double"
_HOOKS = "each function of the hooks is broken in turn; that ranks leave together with the double, test_injection shows"
_ERRORS = "what is judged is an error of the library, and the rule that explains it"
EXEMPT: dict[str, str] = {
    "smoke/test_injection.py::test_an_instrument_that_breaks_costs_its_own_figure": _ALWAYS,
    "smoke/test_hooks.py::test_a_hook_that_breaks_on_one_of_two_ranks": _HOOKS,
    "smoke/test_broken.py::test_fails_with_the_rule_that_knows_why": _ERRORS,
}
"""By module and name below ``tests``."""
