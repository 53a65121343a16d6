"""A look after an edit works out what the edit changed, and shows what a look from nothing shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from lsprotocol.types import Diagnostic as Shown
from lsprotocol.types import Position

from tests.fuzz.linting import repository
from tests.fuzz.texts import damaged, form_of
from zerocfg.linter.engine import _Lint
from zerocfg.lsp import session as sessions
from zerocfg.lsp.answers import hover_text
from zerocfg.lsp.checking import Project, Snapshot
from zerocfg.lsp.diagnostics import Rendered, diagnostics
from zerocfg.lsp.documents import Document
from zerocfg.lsp.session import Session
from zerocfg.run.model import Run
from zerocfg.source import load

OPEN = 500
CONFIG = '{"train_micro_batch_size_per_gpu": %d, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}\n'
ACCELERATE = (
    "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    "  zero3_init_flag: false\n"
)
LINE = "accelerate launch --config_file accelerate.yaml train.py\n"
SCRIPT = "from accelerate import Accelerator\nAccelerator().prepare(None)\n"


def _document(path: Path, text: str, version: int) -> Document:
    return Document(path.as_uri(), text, version, str(path))


def _workspace(folder: Path, runs: int) -> list[Document]:
    (folder / ".git").mkdir(parents=True)
    documents = []
    for number in range(runs):
        at = folder / f"job{number}"
        at.mkdir()
        texts = {"ds.json": CONFIG % (number + 1), "accelerate.yaml": ACCELERATE, "run.sh": LINE, "train.py": SCRIPT}
        for name, text in texts.items():
            (at / name).write_text(text)
        documents += [_document(at / name, texts[name], 1) for name in ("ds.json", "accelerate.yaml")]
    return documents


def _told(
    snapshot: Snapshot, documents: list[Document], rendered: Rendered | None = None, scheme: str = "file"
) -> object:
    open_files = {str(document.path) for document in documents}
    shown = diagnostics(snapshot, open_files, lambda path: f"{scheme}:{path}", "utf-16", rendered)
    roles = {path: kind for path, (kind, _) in snapshot.roles.items()}
    runs = {path: [_described(run) for run in runs] for path, runs in snapshot.runs_of.items()}
    return shown, snapshot.troubles, roles, runs


def _described(run: Run) -> object:
    """What a hover shows of a run."""
    values = {name: repr(setting.value) for name, setting in run.effective.settings.items()}
    ignored = [(one.kind, one.message) for one in run.effective.ignored]
    return run.name, run.consumer, dict(run.versions), values, ignored, [one.kind for one in run.effective.failures]


# -- work ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "edited", "settled", "asked"),
    [
        # a config of one run; a comment alone makes another text, and the run is looked at anew
        (0, CONFIG % 77, 1, 1),
        (1, ACCELERATE + "# more\n", 1, 1),
        # nothing is what it was not
        (0, CONFIG % 1, 0, 0),
    ],
)
def test_an_edit_costs_the_runs_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, edited: str, settled: int, asked: int
) -> None:
    documents = _workspace(tmp_path, OPEN // 2)
    (tmp_path / "zerocfg.toml").write_text('consumer = "trl"\nconsumers = {"job0/*" = "accelerate"}\n')
    project = Project(str(tmp_path))
    project.check(documents)
    (_, kept), *others = project.kept.values()
    assert others == [] and (kept.settled, kept.checked) == (OPEN // 2, OPEN // 2)
    counts = {"parsed": 0, "rules": 0}

    def counted(what: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            counts[what] += 1
            return function(*arguments, **named)

        return call

    monkeypatch.setattr("zerocfg.run.discover.load_as", counted("parsed", load.load_as))
    monkeypatch.setattr("zerocfg.linter.engine._Lint.check", counted("rules", _Lint.check))
    documents[at] = _document(documents[at].file, edited, 2)
    project.check(documents)
    assert (kept.settled - OPEN // 2, kept.checked - OPEN // 2) == (settled, asked)
    assert counts["parsed"] == settled
    assert counts["rules"] <= 400 * asked  # once each, of one run


def test_a_look_for_each_repository_and_no_other(tmp_path: Path) -> None:
    documents = [*_workspace(tmp_path / "a", 2), *_workspace(tmp_path / "b", 3)]
    told: list[tuple[str, int | None]] = []

    async def edit() -> None:
        session = Session(lambda uri, version, _: told.append((uri, version)), lambda message: None)
        for one in documents:
            session.put(one.uri, one.text, 1)
        await session.schedule.settled()
        looked: list[str] = []
        check = Project.check

        def counted(self: Project, given: list[Document]) -> Snapshot:
            looked.append(self.root)
            return check(self, given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sessions.Project, "check", counted)
            told.clear()
            session.change(documents[0].uri, CONFIG % 9, 2)
            hover = await hover_text(session, documents[0].uri, Position(0, 5))
        assert hover is not None and "train_micro_batch_size_per_gpu` = **9**" in str(hover.contents)
        assert looked == [str(tmp_path / "a")]
        session.stop()

    asyncio.run(edit())
    assert told == [(documents[0].uri, 2)]


# -- results ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_after_any_edits_it_shows_what_a_look_from_nothing_shows(seed: int, tmp_path: Path) -> None:
    """Texts change in the editor and behind its back, files come and go, documents are opened and closed."""
    random = Random(f"incremental {seed}")
    (tmp_path / ".git").mkdir()
    for name in ("a", "b", "c"):
        for path, data in repository(random).items():
            target = tmp_path / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    documents = {path: _document(path, _text(path), 1) for path in random.sample(files, max(1, len(files) // 2))}
    project = Project(str(tmp_path))
    rendered: Rendered = {}
    for version in range(2, 22):
        path = random.choice(files)
        way = random.random()
        if way < 0.5 and documents:
            path = random.choice(sorted(documents))
            text = damaged(documents[path].text, form_of(path.name) or "yaml", random) if way < 0.4 else _text(path)
            documents[path] = _document(path, text, version)
        elif way < 0.6:
            documents.pop(path, None)
        elif way < 0.7 and path.is_file():
            documents[path] = _document(path, _text(path), version)
        elif way < 0.8 and path.is_file():
            path.write_text(damaged(_text(path), form_of(path.name) or "yaml", random), "utf-8", "replace")
        elif way < 0.85:
            path.unlink(missing_ok=True)
        elif way < 0.95:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(random.choice((CONFIG % version, ACCELERATE, LINE, SCRIPT)))
        else:
            (path.parent / "requirements.txt").write_text(random.choice(("deepspeed==0.16.9\n", "accelerate<1\n", "")))
        given = list(documents.values())
        scheme = random.choice(("file", "untitled"))  # a client may call a file otherwise when it is opened again
        told = _told(project.check(given), given, rendered, scheme)
        assert told == _told(Project(str(tmp_path)).check(given), given, scheme=scheme), version


def test_requirements_that_a_file_takes_in_are_looked_at_in_every_look(tmp_path: Path) -> None:
    """Also after a look from nothing, for which the texts of the files are still known from the looks before."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("-r base.txt\n")
    (tmp_path / "base.txt").write_text("accelerate<1\n")
    config = tmp_path / "ds.json"
    config.write_text(CONFIG % 1)
    documents = [_document(config, _text(config), 1)]
    project = Project(str(tmp_path))

    def versions() -> dict[str, str]:
        (run,) = project.check(documents).runs
        return dict(run.versions)

    assert versions() == {"accelerate": "<1"}
    (tmp_path / "setup.cfg").write_text("[metadata]\nname = own\n")
    assert versions() == {"accelerate": "<1"}
    (tmp_path / "base.txt").write_text("accelerate<2\n")
    assert versions() == {"accelerate": "<2"}


def test_of_an_edit_only_its_own_findings_are_rendered_again(tmp_path: Path) -> None:
    documents = _workspace(tmp_path, 3)
    bad = CONFIG.replace("enabled", "enabeld")
    for at in (0, 2, 4):
        documents[at] = _document(documents[at].file, bad % at, 2)
    project, own = Project(str(tmp_path)), str(documents[2].path)
    rendered: Rendered = {}

    def shown(uri_of: Callable[[str], str] = str) -> dict[str, list[Shown]]:
        return diagnostics(project.check(documents), set(), uri_of, "utf-16", rendered)

    before = shown()
    documents[2] = _document(documents[2].file, "\n" + bad % 9, 3)
    after = shown()
    assert set(before) == set(after) == {str(documents[at].path) for at in (0, 2, 4)}
    for path in before:
        assert all((first is second) is (path != own) for first, second in zip(before[path], after[path], strict=True))
    assert {one.range.start.line for one in after[own]} == {one.range.start.line + 1 for one in before[own]}


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "deepspeed==0.9.0\n"),  # other releases
        ("zerocfg.toml", 'ignore = ["ZC1"]\n'),  # other rules
        ("pyproject.toml", '[tool.zerocfg]\nconsumers = {"job1/*" = "trl"}\n'),
        ("job1/train.py", "from transformers import Trainer\nTrainer().train()\n"),  # another reader
        ("job1/run.sh", "echo\n"),  # no run
        ("job2/other.sh", "accelerate launch --config_file ../job1/accelerate.yaml train.py\n"),  # one more
    ],
)
def test_a_change_on_disk_that_nobody_told_of(tmp_path: Path, name: str, text: str) -> None:
    documents = _workspace(tmp_path, 4)
    bad = CONFIG.replace("bf16", "bf61").replace('"enabled"', '"immediate_grad_update"')
    documents[2] = _document(documents[2].file, bad % 1, 2)
    project = Project(str(tmp_path))
    before = _told(project.check(documents), documents)
    assert _told(project.check(documents), documents) == before
    (tmp_path / name).write_text(text)
    after = _told(project.check(documents), documents)
    assert after == _told(Project(str(tmp_path)).check(documents), documents)
    assert after != before


def test_what_is_kept_does_not_grow_with_the_edits(tmp_path: Path) -> None:
    documents = _workspace(tmp_path, 3)
    project = Project(str(tmp_path))
    project.check(documents)
    most = sum(map(len, project.notes.values()))
    for version in range(60):
        text = ACCELERATE.replace("ds.json", f"missing{version}.json")
        documents[1] = _document(documents[1].file, text, version + 2)
        (look,) = project.check(documents).looks
        (_, kept), *_ = project.kept.values()
        assert len(kept._findings_now) == len(look.runs)
        assert sum(map(len, project.notes.values())) <= 3 * most
