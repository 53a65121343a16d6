"""Shell completion beyond click's own; imported only to complete, print or install it."""

from __future__ import annotations

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

NAMES = ("bash", "zsh", "fish")


class _WholeWords(ShellComplete):
    """zsh and fish take ``--fail-on=w`` for one word, so they get ``--fail-on=warning``."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        found = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if equals and option.startswith("-"):
            for item in (completion_item for completion_item in found if completion_item.type == "plain"):
                item.value = f"{option}={item.value}"
        return found


@add_completion_class
class Bash(BashComplete):
    """It takes ``--fail-on=w`` for three words."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        return [word for word in args if word != "="], incomplete


@add_completion_class
class Zsh(_WholeWords, ZshComplete):
    """From a folder of ``fpath`` click's script completes once, and at the second tabulator only registers itself."""

    source_template = ZshComplete.source_template.replace(
        "$zsh_eval_context[-1] == loadautofunc", "$funcstack[1] == _%(prog_name)s"
    )


@add_completion_class
class Fish(_WholeWords, FishComplete):
    """Its script ends a description at its first comma."""

    source_template = FishComplete.source_template.replace("(string split ", "(string split --max 1 ")
