"""The steps of a smoke-run in their order, each with what it is given: no rank is started and no library runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke import smoke
from zerocfg.smoke.certify.signature import SignatureError
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.certificate import Check, Command
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.model.reduction import Kind, Reduced, Reduction
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.nodes import Nodes
from zerocfg.smoke.smoke import Options

if TYPE_CHECKING:
    from zerocfg.smoke.prepare.folder import RunFolder

    from .conftest import MakeRun

CPU = Device("cpu", "cpu")
CARD = Device("cuda", "card", 1, 80 << 30, shared=True)


@pytest.fixture
def run(make_run: MakeRun) -> RunFolder:
    return read(make_run(3))


class Stage:
    """Stands in for what a launch goes through. ``said``: each step in its order, with what matters of its arguments.

    ``ends``: the kinds with which launches end; the last one is repeated.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scratch: Path, device: Device = CPU, **more: Any) -> None:
        self.said: list[Any] = []
        self.scratch, self.ends = scratch, list(more.get("ends", [None]))
        self.device, self.deepspeed, self.tools = device, more.get("deepspeed"), more.get("tools")
        scratch.mkdir()
        (scratch / "log.txt").write_text("words")
        put = monkeypatch.setattr
        put(smoke, "_require", lambda run: self.said.append("required"))
        put(smoke, "choose", self.chosen)
        put(smoke, "interrupts", contextlib.nullcontext)
        put(smoke, "scratch", self.lent)
        put(smoke, "reduce", self.reduce)
        put(smoke, "missing_tools", self.missing)
        put(smoke, "variables", lambda folder, own: {"folder": str(folder), "own": own})
        put(smoke, "prepare", self.prepare)
        put("zerocfg.smoke.smoke.process.run", self.launch)
        put("zerocfg.smoke.smoke.process.elsewhere", lambda command: [*command, "elsewhere"])
        put(smoke, "run_checks", lambda run, reduced, outcome, steps: [Check(f"{steps} steps", "", "", True)])
        put(smoke, "linked_run", lambda run: run.name)
        put(smoke, "lint_findings", lambda name: f"findings of {name}")
        put(smoke, "check_arguments", lambda findings: [Check(findings, "", "", False)])
        put(
            "zerocfg.smoke.smoke.measured.check",
            lambda figures, expected, outcome: [Check(str(expected), "", "", None)],
        )
        put("zerocfg.smoke.smoke.sharing.cached", lambda ranks: more.get("cached"))
        put("zerocfg.smoke.smoke.sharing.find", self.shared)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def chosen(self, wanted: str) -> Device:
        self.said.append(wanted)
        return self.device

    @contextlib.contextmanager
    def lent(self) -> Iterator[Path]:
        yield self.scratch
        self.said.append("cleaned up")

    def reduce(self, run: Any, device: Any, ranks: int, folder: Path, limit: float, spread: Any, parts: Any) -> Reduced:
        self.said.append(("reduced", ranks, folder.name, limit, spread, parts))
        return Reduced(ranks, {}, None, self.deepspeed, {}, {})

    def missing(self, config: Any) -> str | None:
        self.said.append(("tools", config))
        found: str | None = self.tools
        return found

    def shared(self, ranks: int, folder: Path, progress: Any) -> Any:
        self.said.append(("tried", ranks, folder.name, progress))
        return SimpleNamespace(mode="gloo", reduction=lambda ranks, name: Reduction(Kind.SHARED_CARD, ranks, name))

    def prepare(self, run: Any, reduced: Any, device: Any, steps: int, folder: Path, *rest: Any) -> list[str]:
        self.said.append(("prepared", reduced.ranks, steps, folder.name, *rest))
        return ["launch"]

    def launch(
        self, command: Any, folder: Path, ranks: int, device: str, limit: float, progress: Any, own: Any, nodes: Any
    ) -> Outcome:
        self.said.append(("launched", command, ranks, device, limit, progress, own, nodes))
        kind = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        return Outcome([], kind and "it ended", kind=kind)


SHARED = {"CUDA_VISIBLE_DEVICES": "0"}


class TestOnce:
    def test_from_the_plan_to_the_verdict(
        self, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage = Stage(monkeypatch, tmp_path / "scratch", deepspeed={"a": 1})
        options = Options(ranks=3, device="cpu", steps=5, limit=70, memory_limit=9, parts=("train",))
        said: Any = print
        verdict = smoke.launch_once(run, options, said)
        own = {"folder": str(tmp_path / "scratch"), "own": None}
        assert stage.said == [
            "required",
            "cpu",
            ("reduced", 3, "scratch", 70, None, ("train",)),
            ("tools", {"a": 1}),
            ("prepared", 3, 5, "scratch", 9, ("train",), None, None),
            ("launched", ["launch"], 3, "cpu", 70, said, own, None),
            "cleaned up",
        ]
        assert [item.name for item in verdict.checks[:2]] == ["5 steps", "findings of tiny"] and len(
            verdict.checks
        ) == 3
        assert (verdict.run, verdict.device, verdict.kept) == (run, CPU, None)

    def test_a_tool_that_is_missing_costs_no_launch(
        self, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage = Stage(monkeypatch, tmp_path / "a", deepspeed={}, tools="ninja is missing")
        with pytest.raises(SmokeError, match=r"^ninja is missing$"):
            smoke.launch_once(run, Options())
        assert stage.said[-1] == ("tools", {})
        without = Stage(monkeypatch, tmp_path / "b", tools="ninja is missing")
        smoke.launch_once(run, Options())
        assert [item[0] for item in without.said].count("launched") == 1, "no DeepSpeed compiles anything"

    @pytest.mark.parametrize(
        ("ends", "launches"),
        [(["port"], 3), (["port", None], 2), (["port", "port", "error"], 3), ([None], 1), (["error"], 1)],
    )
    def test_a_port_that_another_program_took(
        self, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: list[Any], launches: int
    ) -> None:
        """Each further try has another port; there are three."""
        last = ends[-1]
        stage = Stage(monkeypatch, tmp_path / "scratch", ends=ends)
        verdict = smoke.launch_once(run, Options())
        commands = [item[1] for item in stage.said if item[0] == "launched"]
        assert commands == [["launch", *["elsewhere"] * at] for at in range(launches)]
        assert verdict.outcome.kind == last

    def test_several_nodes(self, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each of two machines starts its two ranks of four; all meet at one port, which none of them changes."""
        monkeypatch.setattr("zerocfg.smoke.smoke.nodes.here", lambda count: Nodes(count, 1, "n0", 7))
        stage = Stage(monkeypatch, tmp_path / "a", ends=["port"])
        smoke.launch_once(run, Options(nodes=2))
        spread = Nodes(2, 1, "n0", 7, 2)
        assert ("reduced", 4, "a", 300, spread, ("train", "resume", "reference")) in stage.said
        launched = [item for item in stage.said if item[0] == "launched"]
        assert len(launched) == 1 and launched[0][2] == 4 and launched[0][-1] == spread
        assert [item[-1] for item in stage.said if item[0] == "prepared"] == [spread]
        Stage(monkeypatch, tmp_path / "b")
        run.handwritten = SimpleNamespace()  # type: ignore[assignment]
        with pytest.raises(SmokeError, match=r"tiny: --nodes takes a build; configs written by hand are run on one"):
            smoke.launch_once(run, Options(nodes=2))
        assert smoke.launch_once(run, Options()).reduced.ranks == 2

    @pytest.mark.parametrize(("asked", "memory"), [(None, 39 << 30), (7, 7)])
    def test_ranks_that_share_a_card(
        self, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int | None, memory: int
    ) -> None:
        """Half of the card, less a GiB for what is no tensor, unless something else is asked for."""
        stage = Stage(monkeypatch, tmp_path / "a", CARD)
        verdict = smoke.launch_once(run, Options(memory_limit=asked))
        assert ("tried", 2, "a", None) in stage.said
        assert ("prepared", 2, 3, "a", memory, ("train", "resume", "reference"), "gloo", None) in stage.said
        (own,) = [item[6] for item in stage.said if item[0] == "launched"]
        assert own == {"folder": str(tmp_path / "a"), "own": None} | SHARED
        assert verdict.reduced.changes == [Reduction(Kind.SHARED_CARD, 2, "card")]
        known = stage.shared(2, tmp_path, None)
        again = Stage(monkeypatch, tmp_path / "b", CARD, cached=known)
        assert smoke.launch_once(run, Options()).reduced.changes and not [
            item for item in again.said if "tried" in item
        ]

    @pytest.mark.parametrize(("device", "ranks"), [(CARD, 1), (replace(CARD, shared=False, count=2), 2), (CPU, 2)])
    def test_others_share_nothing(
        self, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Device, ranks: int
    ) -> None:
        stage = Stage(monkeypatch, tmp_path / "scratch", device)
        verdict = smoke.launch_once(run, Options(ranks=ranks))
        assert verdict.reduced.changes == [] and not [item for item in stage.said if "tried" in item]
        assert [item[4:] for item in stage.said if item[0] == "prepared"] == [
            (None, ("train", "resume", "reference"), None, None)
        ]

    def test_what_is_kept(self, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Stage(monkeypatch, tmp_path / "scratch")
        keep = tmp_path / "some" / "where"
        assert smoke.launch_once(run, Options(keep=keep)).kept == keep
        assert (keep / "log.txt").read_text() == "words"
        (tmp_path / "file").write_text("")
        stage = Stage(monkeypatch, tmp_path / "other")
        with pytest.raises(SmokeError, match="cannot create the folder of --keep"):
            smoke.launch_once(run, Options(keep=tmp_path / "file"))
        assert not [item for item in stage.said if "launched" in item], "a failure to create it costs no run"


def test_one_card_for_all_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Device("cuda", "card", 2)
    monkeypatch.setattr(smoke, "choose", lambda wanted: two if wanted == "cuda" else CPU)
    assert smoke.device_for(Options(device="cuda")) == two
    assert smoke.device_for(Options(device="cuda", share_gpu=True)) == Device("cuda", "card", 1, shared=True)
    assert smoke.device_for(Options(device="cpu")) == CPU


class TestCommand:
    def test_the_users_own(self, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        said: Any = print
        stage = Stage(monkeypatch, tmp_path / "scratch")
        asked: list[Any] = []
        command = Command("bash go.sh", "Trainer")
        played = SimpleNamespace(
            reduced=Reduced(2, {}, None, None, {}, {}), outcome=Outcome([]), checks=[Check("a", "", "", True)],
            command=command,
        )  # fmt: skip

        def play(*words: Any) -> Any:
            asked.append(words)
            return played

        monkeypatch.setattr("zerocfg.smoke.smoke.commands.run_command", play)
        options = Options(ranks=3, device="cpu", steps=5, limit=70, keep=tmp_path / "kept")
        verdict = smoke._command(run, "bash go.sh", options, said)
        assert asked == [("bash go.sh", run, CPU, 5, 3, 70, tmp_path / "scratch", said)]
        assert (verdict.command, verdict.kept, verdict.checks) == (command, tmp_path / "kept", played.checks)
        assert (verdict.run, verdict.reduced, verdict.outcome) == (run, played.reduced, played.outcome)
        assert stage.said == ["cpu", "cleaned up"]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (Options(), ["launched tiny by x as y", "certified 3 None"]),
            (Options(steps=7, sign=Path("key")), ["launched tiny by x as y", "certified 7 key"]),
            (Options(command="go"), ["played go of tiny by x as y", "certified 3 None"]),
            (Options(command="go", unplanned=True), ["played go of without go"]),
            (Options(unplanned=True), ["launched tiny by x as y", "certified 3 None"]),
            (Options(nodes=2), ["launched tiny by x as y", "certified 3 None"]),
            (Options(nodes=3), ["launched tiny by x as y"]),
        ],
    )
    def test_who_is_launched_and_certified(
        self, monkeypatch: pytest.MonkeyPatch, options: Options, said: list[str]
    ) -> None:
        """Of several machines the first alone writes; a command without a run certifies nothing."""
        found: list[str] = []

        def launched(words: str) -> Any:
            found.append(words)
            return SimpleNamespace(certificate=None)

        def certified(verdict: Any, steps: int, key: Path | None) -> Path:
            found.append(f"certified {steps} {key}")
            return Path("smoke.json")

        put = monkeypatch.setattr
        put(smoke, "read", lambda folder, consumer, name: f"{folder} by {consumer} as {name}")
        put(smoke, "launch_once", lambda run, options, progress: launched(f"launched {run}"))
        put(smoke, "_command", lambda run, line, options, progress: launched(f"played {line} of {run}"))
        put("zerocfg.smoke.smoke.commands.without_plan", lambda line: f"without {line}")
        put(smoke, "certify", certified)
        put("zerocfg.smoke.smoke.nodes.here", lambda count: Nodes(count, count - 2, "a", 1))
        verdict = smoke.smoke(Path("tiny"), replace(options, consumer="x", name="y"), None)
        assert found == said
        assert verdict.certificate == (Path("smoke.json") if said[-1].startswith("certified") else None)


class TestCertify:
    def verdict(self, run: RunFolder, **outcome: Any) -> Any:
        return SimpleNamespace(run=run, outcome=Outcome([], **outcome), uncertified=None)

    @pytest.fixture
    def written(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        found: list[Any] = []

        def write(folder: Path, result: Any, **named: Any) -> Path:
            found.append((folder, result, named))
            return folder / "smoke.json"

        monkeypatch.setattr("zerocfg.smoke.smoke.certificate_file.write", write)
        monkeypatch.setattr(smoke, "smoke_result", lambda verdict: f"of {verdict.run.name}")
        monkeypatch.setattr(smoke, "_releases", lambda verdict: {"torch": "2"})
        monkeypatch.setattr(smoke, "code_hashes", lambda path, lock: {"of": f"{path.name} {lock.run}"})
        monkeypatch.setattr(smoke, "sign", lambda path, key: found.append((path.name, key)))
        return found

    def test_what_is_written_and_signed(self, run: RunFolder, written: list[Any]) -> None:
        item = self.verdict(run)
        named = {
            "steps": 4, "versions": {"torch": "2"}, "files": run.hashes, "lock": run.lock, "code": {"of": "tiny tiny"},
        }  # fmt: skip
        assert smoke.certify(item, 4) == run.path / "smoke.json"
        assert written == [(run.path, "of tiny", named)] and item.uncertified is None
        assert smoke.certify(item, 4, Path("key")) == run.path / "smoke.json"
        assert written[2] == ("smoke.json", Path("key")) and item.uncertified is None

    def test_none_of_configs_by_hand(self, run: RunFolder, written: list[Any]) -> None:
        run.handwritten = SimpleNamespace()  # type: ignore[assignment]
        item = self.verdict(run)
        assert smoke.certify(item, 4) is None and written == [] and item.uncertified is None

    @pytest.mark.parametrize("interrupted", [False, True])
    @pytest.mark.parametrize("certified", [False, True])
    def test_an_interrupted_run_takes_nothing_away(
        self, run: RunFolder, written: list[Any], monkeypatch: pytest.MonkeyPatch, interrupted: bool, certified: bool
    ) -> None:
        monkeypatch.setattr(smoke, "is_certified", lambda run: certified)
        item = self.verdict(run, failure="Ctrl-C", interrupted=interrupted)
        stays = interrupted and certified
        assert smoke.certify(item, 4) == (None if stays else run.path / "smoke.json")
        words = f"{run.path}/smoke.json stays: it is of this build, and passed"
        assert (item.uncertified, len(written)) == ((words, 0) if stays else (None, 1))

    @pytest.mark.parametrize(
        ("error", "words"), [(OSError(30, "Read-only file system"), "Read-only file system"), (OSError("odd"), "odd")]
    )
    def test_a_folder_that_cannot_be_written(
        self, run: RunFolder, written: list[Any], monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
    ) -> None:
        def write(*_: Any, **__: Any) -> Path:
            raise error

        monkeypatch.setattr("zerocfg.smoke.smoke.certificate_file.write", write)
        item = self.verdict(run)
        assert smoke.certify(item, 4) is None
        assert item.uncertified == f"not written, {run.path}/smoke.json: {words}"

    def test_a_key_that_signs_nothing(
        self, run: RunFolder, written: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def sign(path: Path, key: Path) -> None:
            raise SignatureError("no such key")

        monkeypatch.setattr(smoke, "sign", sign)
        item = self.verdict(run)
        assert smoke.certify(item, 4, Path("key")) == run.path / "smoke.json", "the certificate is there"
        assert item.uncertified == "not signed, no such key"
