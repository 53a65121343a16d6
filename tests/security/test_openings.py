"""Whatever opens or writes a file, follows a link, starts a program or compiles a pattern is known, and has a limit.

Files of others are read through `zerocfg/source/disk.py`, which knows sizes, pipes and the boundary of trust. All else
stands here with the reason for which no hostile repository reaches it. A line that nothing needs any more fails, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "zerocfg"
OWN, RANKS, MACHINE, SCRATCH = (
    "a file of the installation",
    "runs in the ranks of a training, which the user started",
    "a file of the system",
    "a file that zerocfg itself writes, in a folder of its own",
)
OPENINGS = {
    "catalog/": OWN,
    "plugins.py": OWN,
    "cli/commands/schema.py": "files of the installation, and schemas into a folder that lies inside",
    "workspace/examples.py": SCRATCH,
    "resolve/model_plans.py": SCRATCH,
    "emit/ray_job.py": OWN,
    "page/html.py": OWN,
    "rulebook/pages.py": OWN,
    "run/widths.py": OWN,
    "cli/exit_code.py": "/dev/null",
    "__main__.py": "/dev/null, for a stream that is closed, and the streams",
    "emit/exclusive.py": "locks the folder of a build, after `check_inside`",
    "workspace/cache.py": "writes an outcome into the user's cache folder",
    "source/disk.py": "the place itself",
    "source/write.py": "writes; a file beside the target that it has just made, and a link of /proc",
    "resume/torch_file.py": "an archive in a file that `disk.opened` gave",
    "memory/activations/tracer_process.py": "its own modules, and outcomes in the user's cache folder",
    "cli/fleet/node.py": SCRATCH,
    "cluster/": SCRATCH,
    "hardware/linux.py": MACHINE,
    "hardware/drives.py": "writes a file to measure a drive",
    "hardware/measure.py": SCRATCH,
    "hardware/measuring/": RANKS,
    "smoke/judge/command.py": SCRATCH,
    "smoke/launch/": "follows the ranks of a training: their logs, their processes and its own folder",
    "smoke/prepare/operators.py": OWN,
    "smoke/remote/node.py": SCRATCH,
    "smoke/worker/": RANKS,
}
STARTS = {
    "gate/gate.py": "git, with a time limit and words that are no options",
    "smoke/certify/signature.py": "ssh-keygen, with a time limit and files that are not large",
    "cli/commands/completion.py": "the shell of the user, with a time limit",
    "environment.py": "compilers of the machine, with a time limit",
    "memory/activations/tracer_process.py": "the tracer, with a time limit; only where a spec asks for it",
    "hardware/measure.py": "measures this machine; the user asked for it",
    "preflight/start.py": "the ranks of a preflight; the user asked for it",
    "cluster/": "a job of a cluster; the user asked for it",
    "smoke/": "a training; the user asked for it",
}
PATTERNS = {
    "source/launch/": "put together of patterns of its own",
    "source/foreign.py": "put together of codes of its own",
    "source/hjson_scanner.py": "a quotation mark, and a number of blanks",
    "source/requirements/manifests.py": "a name that its callers write out",
    "resolve/spec/validation_errors.py": "from a table of its own",
    "rulebook/proof.py": "of a page of a rule",
    "run/linking/": "put together of patterns of its own, and of names that are escaped",
    "smoke/": "of pages of rules, and of names of its own",
}
_READS = {"read_text", "read_bytes", "readlink", "write_text", "write_bytes"}
_OPENS = {"open", "os.open", "os.fdopen", "io.open", "io.FileIO", "zipfile.ZipFile", "os.readlink"}
_FILES = {"files", "self.files", "paths.files", "later", "self", "self.scope", "Files()"}
"""What has an `open` that reads through `disk`, or opens no file."""
_STARTS = {"run", "Popen", "call", "check_call", "check_output"}
_RE = {"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}


def _calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Every call with its module and what is called."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield path.relative_to(ROOT).as_posix(), node, ast.unparse(node.func)


def _opens(call: ast.Call, name: str) -> bool:
    if name in _OPENS or not isinstance(call.func, ast.Attribute):
        return name in _OPENS
    of = ast.unparse(call.func.value)
    if call.func.attr == "open":
        return of not in _FILES and not (of == "tarfile" and any(one.arg == "fileobj" for one in call.keywords))
    return call.func.attr in _READS and of != "linux"


def _starts(_: ast.Call, name: str) -> bool:
    if name.startswith("subprocess."):
        return name.partition(".")[2] in _STARTS
    return name.startswith(("os.exec", "os.spawn", "os.system", "os.popen", "os.posix_spawn"))


def _is_foreign(pattern: ast.expr) -> bool:
    """Whether a pattern may hold what is no constant and not escaped."""
    if isinstance(pattern, ast.JoinedStr):
        parts = [one.value for one in pattern.values if isinstance(one, ast.FormattedValue)]
        return any(_is_foreign(part) for part in parts)
    if isinstance(pattern, ast.Call):
        return ast.unparse(pattern.func) != "re.escape"
    return not (isinstance(pattern, ast.Constant) or (isinstance(pattern, ast.Name) and pattern.id.isupper()))


def _patterns(call: ast.Call, name: str) -> bool:
    if name != "pattern" and not (name.startswith("re.") and name[3:] in _RE):
        return False
    return _is_foreign(call.args[0])


KINDS = {"opens": (_opens, OPENINGS), "starts": (_starts, STARTS), "patterns": (_patterns, PATTERNS)}


@pytest.mark.parametrize("kind", KINDS)
def test_each_place_is_known(kind: str) -> None:
    counts, exempt = KINDS[kind]
    unused, unknown = set(exempt), set()
    for module, call, name in _calls():
        if counts(call, name):
            why = next((one for one in exempt if module.startswith(one)), None)
            if why is None:
                unknown.add(f"{module}:{call.lineno}: {ast.unparse(call)[:80]}")
            unused.discard(why or "")
    assert not unknown
    assert not unused


@pytest.mark.parametrize(
    ("kind", "line", "counts"),
    [
        ("opens", "path.read_text()", True),
        ("opens", "Path(name).open('rb')", True),
        ("opens", "open(name)", True),
        ("opens", "os.readlink(name)", True),
        ("opens", "disk.whole(path, 10)", False),
        ("opens", "self.files.open(path)", False),
        ("starts", "subprocess.run(['x'])", True),
        ("starts", "subprocess.list2cmdline(['x'])", False),
        ("patterns", "re.compile(text)", True),
        ("patterns", "re.search(f'^{name}$', text)", True),
        ("patterns", "re.search(f'^{re.escape(name)}$', text)", False),
        ("patterns", "re.search(_NAME, text)", False),
        ("patterns", "re.search('^a$', text)", False),
    ],
)
def test_what_counts(kind: str, line: str, counts: bool) -> None:
    call = ast.parse(line, mode="eval").body
    assert isinstance(call, ast.Call)
    assert KINDS[kind][0](call, ast.unparse(call.func)) is counts
