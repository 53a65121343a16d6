"""Completion as the shells have it: the installed script, asked by the real bash, zsh and fish."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from zerocfg.cli.commands.completion import SHELLS, place
from zerocfg.cli.main import COMMANDS

Cli = Callable[..., Outcome]
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
HELD = 60.0
"""Seconds after which a shell that does not say what it should is killed."""


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"no {shell} here")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"source '{script}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _zerocfg_completion zerocfg"
    line = f'{code}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", line], env={**os.environ, "PATH": PATH}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@needs("bash")
def test_bash_completes_commands_options_and_values(zerocfg: Cli) -> None:
    told = zerocfg("completion", "bash", "--install")
    assert told.code == 0 and "new shells complete" in told.out
    script = place("bash")
    assert completed(script, "zerocfg", "sm") == ["smoke"]
    assert completed(script, "zerocfg", "check") == ["check-resume"]
    assert "--fail-on" in completed(script, "zerocfg", "lint", "--fa")
    assert completed(script, "zerocfg", "lint", "--fail-on", "w") == ["warning"]
    assert completed(script, "zerocfg", "lint", "--fail-on", "=", "w") == ["warning"]  # as bash takes --fail-on=w apart


@needs("fish")
def test_fish_completes_commands_options_and_values(zerocfg: Cli, home: Path) -> None:
    assert zerocfg("completion", "fish", "--install").code == 0
    (home / "configs").mkdir()
    (home / "configs" / "ds_config.json").touch()

    def offered(line: str) -> dict[str, str]:
        """What fish offers behind a line, with what it says of it."""
        words = ["fish", "-c", f"complete -C '{line}'"]
        done = subprocess.run(words, cwd=home, env={**os.environ, "PATH": PATH}, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
        return dict((*one.split("\t", 1), "")[:2] for one in done.stdout.splitlines())

    assert offered("zerocfg ") == COMMANDS, "each with its whole sentence"
    assert offered("zerocfg lint --fa").keys() == {"--fail-on", "--fail-on-new"}
    assert offered("zerocfg lint --fail-on=w").keys() == {"--fail-on=warning"}
    assert offered("zerocfg lint --output-format j").keys() == {"json", "junit"}
    assert offered("zerocfg lint configs/").keys() == {"configs/ds_config.json"}


@needs("zsh")
def test_zsh_completes_commands_options_and_values(zerocfg: Cli, home: Path) -> None:
    """With what the installation says in ~/.zshrc; the tabulator is pressed in a terminal."""
    told = zerocfg("completion", "zsh", "--install").out
    (line,) = re.findall(r"^zsh does not look there yet;.*: (fpath\S+)$", told, re.M)
    (home / ".zshrc").write_text(f"{line}\nautoload -Uz compinit && compinit -u\n{SHOW_LINE}PS1='ready> '\n")
    (home / "ds_config.json").touch()
    with in_terminal(["zsh", "-i"], home) as (say, until):
        for typed, rest in (
            ("zerocfg sm", "oke "),
            ("zerocfg lint --prev", "iew "),
            ("zerocfg lint --fail-on=w", "arning "),
            ("zerocfg lint ds", "_config.json "),
        ):
            until("ready> ")
            say(f"{typed}\t")
            until(rest)
            say("\x10")
            until(f"<{typed}{rest}>")
        until("ready> ")
        say("zerocfg \t")
        until(re.escape(f"-- {COMMANDS['schema']}"))
    assert "zsh does not look there yet" not in zerocfg("completion", "zsh", "--install").out


SHOW_LINE = """\
show-line() { zle -I; print -r -- "<$BUFFER>"; BUFFER= }
zle -N show-line
bindkey '^P' show-line
"""
"""Control-P prints the line that came of a tabulator, and empties it."""


@contextmanager
def in_terminal(words: list[str], home: Path) -> Iterator[tuple[Callable[[str], object], Callable[[str], None]]]:
    """A shell in a terminal of its own: what types into it, and what waits until it has written a pattern."""
    import pty

    ours, its = pty.openpty()
    environment = {**os.environ, "PATH": PATH, "HOME": str(home), "ZDOTDIR": str(home), "TERM": "dumb"}
    environment |= {"COLUMNS": "200", "LINES": "60"}
    shell = subprocess.Popen(
        words, stdin=its, stdout=its, stderr=its, env=environment, cwd=home, start_new_session=True
    )
    os.close(its)
    guard = threading.Timer(HELD, shell.kill)
    guard.start()
    written = ""

    def until(pattern: str) -> None:
        nonlocal written
        while (found := re.search(pattern, written)) is None:
            try:
                written += os.read(ours, 65536).decode(errors="replace")
            except OSError:  # the shell has ended
                pytest.fail(f"no {pattern!r} in {written!r}")
        written = written[found.end() :]

    try:
        yield lambda text: os.write(ours, text.encode()), until
    finally:
        guard.cancel()
        shell.kill()
        shell.wait()
        os.close(ours)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script_at_its_place(shell: str, zerocfg: Cli, home: Path) -> None:
    printed = zerocfg("completion", shell)
    assert printed.code == 0 and f"_ZEROCFG_COMPLETE={shell}_complete" in printed.out
    assert zerocfg("completion", shell, "--install").code == 0
    assert place(shell).read_text().strip() == printed.out.strip() and place(shell).is_relative_to(home)


def test_the_shell_is_that_of_the_user(zerocfg: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/local/bin/fish")
    assert "fish_complete" in zerocfg("completion").out
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    refused = zerocfg("completion")
    assert refused.code == 2 and "which shell?" in refused.err


def test_a_place_that_cannot_be_written(zerocfg: Cli, home: Path) -> None:
    (home / ".local").write_text("a file")
    refused = zerocfg("completion", "bash", "--install")
    assert refused.code == 2 and "cannot be written" in refused.err
