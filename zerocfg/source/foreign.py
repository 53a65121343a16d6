"""Sanitises foreign text: content of files, names and libraries may control neither a terminal nor a CI log.

Every character that a reader cannot see, or that turns the text around, is shown as its escape in JSON: control and
format characters, line ends, lone surrogates.
"""

from __future__ import annotations

from zerocfg.patterns import pattern

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of Unicode."""
COLOURS = {"error": "31;1", "warning": "33;1", "note": "36;1", "blue": "34", "bold": "1", "green": "32", "": "0"}
"""What zerocfg colours with, by use; "": the end of a colour."""
_COLOUR = pattern(rf"\x1b\[(?:{'|'.join(COLOURS.values())})m")
_BYTES = ("\udc80", "\udcff")
"""First and last of what stands for the odd bytes of a file's name, which are written as they are."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_COMMANDS = ("##[", "##vso[")
"""Where a workflow command of GitHub's older runners and of Azure Pipelines begins, anywhere in a line. Those of
GitHub's runner begin a line: ``::error::``."""


def one_line(text: str) -> str:
    """A name or a message that holds one, on one line."""
    return text if text.isprintable() else "".join(map(_seen, text))


def harmless(text: str, *, commands: bool = True, coloured: bool = False) -> str:
    """What is printed: its lines and tabs stay. ``commands``: no line of it is a command to a CI runner. ``coloured``:
    it was coloured by zerocfg (`report.full.Paint`), and its colours stay; names in it have been through `one_line`."""
    return "\n".join(_line(line, commands, coloured) for line in text.split("\n"))


def _line(line: str, commands: bool, coloured: bool) -> str:
    if commands:
        for command in _COMMANDS:
            line = line.replace(command, f"#{_escape('#')}{command[2:]}")
        start = line.lstrip()
        if start.startswith("::") and start[2:3].isalpha():  # the runner knows commands by name; `::: file` is none
            line = line.replace("::", f"{_escape(':')}:", 1)
    if line.isprintable():
        return line
    if not coloured:
        return _tabbed(line)
    parts: list[str] = []
    end = 0
    for own in _COLOUR.finditer(line):
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
