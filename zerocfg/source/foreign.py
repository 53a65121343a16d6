"""Sanitises foreign text: content of files, names and libraries may control neither a terminal nor a CI log.

Every character that a reader cannot see, or that turns the text around, is shown as its escape in JSON: control and
format characters, line ends, lone surrogates.
"""

from __future__ import annotations

from zerocfg.patterns import pattern

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of Unicode."""
_OWN = pattern(r"\A\r\x1b\[K|\A\x1b\[2J\x1b\[1;1H|\x1b\[[0-9;]*m")
"""What zerocfg itself writes to a terminal: colours; a line of progress drawn anew, a screen cleared for a new look."""
_BYTES = ("\udc80", "\udcff")
"""First and last of what stands for the odd bytes of a file's name, which are written as they are."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_COMMANDS = ("##[", "##vso[")
"""Where a workflow command of GitHub's older runners and of Azure Pipelines begins, anywhere in a line. Those of
GitHub's runner begin a line: ``::error::``."""


def one_line(text: str) -> str:
    """A name or a message that holds one, on one line."""
    return text if text.isprintable() else "".join(map(_seen, text))


def harmless(text: str, *, commands: bool = True) -> str:
    """What is printed: its lines, tabs and colours stay. ``commands``: no line of it is a command to a CI runner."""
    return "\n".join(_line(line, commands) for line in text.split("\n"))


def _line(line: str, commands: bool) -> str:
    if commands:
        for command in _COMMANDS:
            line = line.replace(command, f"#{_escape('#')}{command[2:]}")
        start = line.lstrip()
        if start.startswith("::") and start[2:3].isalpha():  # the runner knows commands by name; `::: file` is none
            line = line.replace("::", f"{_escape(':')}:", 1)
    if line.isprintable():
        return line
    parts: list[str] = []
    end = 0
    for own in _OWN.finditer(line):
        parts += (_tabbed(line[end : own.start()]), own[0])
        end = own.end()
    return "".join((*parts, _tabbed(line[end:])))


def _tabbed(text: str) -> str:
    return "\t".join(map(one_line, text.split("\t")))


def _seen(char: str) -> str:
    if char.isprintable() or _BYTES[0] <= char <= _BYTES[1]:
        return char
    from unicodedata import category  # few texts need it

    return _escape(char) if category(char) in _UNSEEN else char


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return _SHORT.get(char) or "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
