"""The formats for services, read by what reads them: official schemas, a parser of JUnit, GitHub's escaping."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import junitparser
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.conftest import Outcome
from tests.cli.schemas import jenkins_junit, official
from tests.conftest import ROOT
from zerocfg.source.edit import Edit, apply_edits
from zerocfg.source.text import SourceText, Span

Cli = Callable[..., Outcome]
SARIF = official("https://json.schemastore.org/sarif-2.1.0.json")
YAML = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"
DEAD = "  overlap_comm: true\n"


def sarif(outcome: Outcome) -> dict[str, Any]:
    """The only run of the log, after the official schema accepted the log."""
    log = json.loads(outcome.out)
    jsonschema.validators.validator_for(SARIF)(SARIF).validate(log)
    (run,) = log["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    found: dict[str, Any] = run
    return found


@pytest.fixture
def pitfalls(tmp_path: Path) -> Path:
    """The example that is wrong on purpose, several files that disagree."""
    for file in (ROOT / "examples" / "pitfalls").iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_sarif_of_files_that_disagree(zerocfg: Cli, pitfalls: Path) -> None:
    run = sarif(zerocfg("lint", "--output-format", "sarif"))
    told = json.loads(zerocfg("lint", "--output-format", "json").out)["diagnostics"]
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [(d["code"], d["severity"]) for d in told]
    assert run["columnKind"] == "unicodeCodePoints"
    for result, diagnostic in zip(run["results"], told, strict=True):
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == diagnostic["file"]
        assert place["region"]["startLine"] == diagnostic["start"]["line"]
        assert len(result.get("relatedLocations", [])) == len(diagnostic["related"])
    across = [one for one in run["results"] if one["ruleId"] == "ZC201"]
    assert {place["physicalLocation"]["artifactLocation"]["uri"] for place in across[0]["relatedLocations"]} == {
        "recipe.yaml"
    }


def test_the_fixes_in_sarif_are_those_of_lint(zerocfg: Cli, tmp_path: Path) -> None:
    """Applied by what the regions say, a fix gives what --fix writes."""
    file = tmp_path / "accelerate.yaml"
    file.write_text(YAML.replace("zero_stage", "zero_stagee"))
    (result,) = (one for one in sarif(zerocfg("lint", "--output-format", "sarif"))["results"] if "fixes" in one)
    (change,) = result["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"]["uri"] == file.name
    source = SourceText(file.name, file.read_text())
    edits = []
    for one in change["replacements"]:
        region = one["deletedRegion"]
        start = source.offset(region["startLine"] - 1, region["startColumn"] - 1)
        end = source.offset(region["endLine"] - 1, region["endColumn"] - 1)
        edits.append(Edit(Span(start, end), one["insertedContent"]["text"]))
    by_hand = apply_edits(source.text, edits)
    zerocfg("lint", "--fix")
    assert by_hand == file.read_text() == YAML


def test_what_is_silenced_is_in_sarif_as_suppressed(zerocfg: Cli, tmp_path: Path) -> None:
    file = tmp_path / "accelerate.yaml"
    file.write_text(YAML + "  # zerocfg: ignore[ZC103] our fork reads it\n" + DEAD)
    outcome = zerocfg("lint", "--output-format", "sarif")
    (result,) = sarif(outcome)["results"]
    assert outcome.code == 0
    assert result["suppressions"] == [{"kind": "inSource", "justification": "our fork reads it"}]
    (tmp_path / "zerocfg.toml").write_text('[per-file-ignores]\n"accelerate.yaml" = ["ZC103"]\n')
    file.write_text(YAML + DEAD)
    (result,) = sarif(zerocfg("lint", "--output-format", "sarif"))["results"]
    assert result["suppressions"][0]["kind"] == "external"


def test_fingerprints_outlive_lines_that_move(zerocfg: Cli, tmp_path: Path) -> None:
    file = tmp_path / "accelerate.yaml"

    def keys() -> dict[str, str]:
        results = sarif(zerocfg("lint", "--output-format", "sarif"))["results"]
        return {one["partialFingerprints"]["zerocfg/v1"]: one["ruleId"] for one in results}

    file.write_text(YAML + DEAD + "  reduce_scatter: true\n")
    before = keys()
    assert len(before) == 2
    file.write_text("# a comment\n\n" + YAML + "  reduce_scatter: true\n" + DEAD)
    assert keys() == before
    file.write_text(YAML + DEAD.replace("true", "false") + "  reduce_scatter: true\n")
    assert len(before.keys() & keys().keys()) == 1, "another value is another finding"


def test_names_become_uris(zerocfg: Cli, tmp_path: Path) -> None:
    file = tmp_path / "my configs" / "größe#1.yaml"
    file.parent.mkdir()
    file.write_text(YAML + DEAD)
    for target in (str(tmp_path), "."):
        (result,) = sarif(zerocfg("lint", target, "--output-format", "sarif"))["results"]
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert uri.endswith("my%20configs/gr%C3%B6%C3%9Fe%231.yaml")


def test_nothing_found(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(YAML)
    assert sarif(zerocfg("lint", "--output-format", "sarif"))["results"] == []
    assert json.loads(zerocfg("lint", "--output-format", "gitlab").out) == []
    assert zerocfg("lint", "--output-format", "github").out == "All checks passed in 1 file.\n"
    document = junitparser.JUnitXml.fromstring(zerocfg("lint", "--output-format", "junit").out.encode())
    assert [(suite.tests, suite.failures) for suite in document] == [(1, 0)]


def test_junit(zerocfg: Cli, pitfalls: Path) -> None:
    document = junitparser.JUnitXml.fromstring(zerocfg("lint", "--output-format", "junit").out.encode())
    told = json.loads(zerocfg("lint", "--output-format", "json").out)["diagnostics"]
    cases = [case for suite in document for case in suite]
    failed = [case for case in cases if case.result]
    assert len(cases) == len(told)
    assert len(failed) == sum(one["severity"] != "note" for one in told)
    assert {suite.name for suite in document} == {one["file"] for one in told}
    assert all(suite.failures == sum(bool(case.result) for case in suite) for suite in document)
    assert failed[0].result[0].message in {one["message"] for one in told}


@pytest.mark.parametrize("value", ["2", "two", "\x00\x1b[0m", "a\ud800b", "]]>&<\"'", "  \t\n ", "\U0001f600\uffff"])
def test_junit_is_valid_by_the_schema_of_jenkins(zerocfg: Cli, pitfalls: Path, value: str) -> None:
    """Of the two schemas that exist. Ant's wants the time and the host of a run of tests, which a report of
    configs has not: the same configs give the same report."""
    from lxml import etree

    (pitfalls / "more.json").write_text(json.dumps({"zero_optimization": {"stage": value}, f"k{value}": 1}))
    document = etree.fromstring(zerocfg("lint", "--output-format", "junit").out.encode())
    jenkins_junit().assertValid(document)
    assert len(document.findall(".//failure")) > 10
    clean = etree.fromstring(zerocfg("lint", "--ignore", "ZC", "--output-format", "junit").out.encode())
    jenkins_junit().assertValid(clean)


GITLAB: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "additionalProperties": False,
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "minLength": 1},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "additionalProperties": False,
                "properties": {
                    "path": {"type": "string", "pattern": r"^[^./\\][^\\]*$"},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "additionalProperties": False,
                        "properties": {
                            "begin": {"type": "integer", "minimum": 1},
                            "end": {"type": "integer", "minimum": 1},
                        },
                    },
                },
            },
        },
    },
}
"""What GitLab documents of its code quality report (docs.gitlab.com/ci/testing/code_quality). The schema that it reads
reports by (app/validators/json_schemas/codeclimate.json) asks for less, and no package of a registry carries it."""


def test_gitlab(zerocfg: Cli, pitfalls: Path) -> None:
    """The required fields of GitLab's format, with its severities, and no fingerprint twice."""
    entries = json.loads(zerocfg("lint", "--output-format", "gitlab").out)
    jsonschema.validate(entries, GITLAB)
    assert len(entries) > 20
    for entry in entries:
        assert entry.keys() == {"description", "check_name", "fingerprint", "severity", "location"}
        assert entry["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert entry["location"]["lines"]["begin"] >= 1 and not entry["location"]["path"].startswith("./")
    assert len({entry["fingerprint"] for entry in entries}) == len(entries)


def command(line: str) -> tuple[str, dict[str, str], str]:
    """(name, properties, data) as the runner takes a line of the log apart (actions/runner, ActionCommand.cs)."""
    assert line.startswith("::")
    said, _, data = line[2:].partition("::")
    name, _, properties = said.partition(" ")
    words = (word.split("=", 1) for word in properties.split(",") if word)
    return name, {key: unescaped(value, ":", ",") for key, value in words}, unescaped(data)


def unescaped(text: str, *more: str) -> str:
    for char in ("\r", "\n", *more, "%"):
        text = text.replace(f"%{ord(char):02X}", char)
    return text


def test_github(zerocfg: Cli, pitfalls: Path) -> None:
    """Each line is a command as the runner parses it, the gravest first, and a summary that people read."""
    *lines, summary = zerocfg("lint", "--output-format", "github").out.splitlines()
    told = json.loads(zerocfg("lint", "--output-format", "json").out)["diagnostics"]
    assert len(lines) == len(told) and summary.startswith("Found ")
    levels = []
    for line in lines:
        level, words, _ = command(line)
        assert {"file", "line", "endLine", "title"} <= words.keys()
        levels.append(level)
    assert levels == sorted(levels, key=["error", "warning", "notice"].index)
    assert {command(line)[2].split("\n")[0] for line in lines} == {one["message"] for one in told}


def test_github_gets_back_what_was_escaped(zerocfg: Cli, tmp_path: Path) -> None:
    """Names with the signs that end a property, values with those that end a line or look like a command."""
    file = tmp_path / "100%25: a, b=c%.json"
    file.write_text(json.dumps({"zero_optimization": {"stage": "50%0A of\r\n::warning::x, %25"}}))
    line, _ = zerocfg("lint", "--select", "ZC106", "--output-format", "github").out.splitlines()
    (told,) = json.loads(zerocfg("lint", "--select", "ZC106", "--output-format", "json").out)["diagnostics"]
    name, words, data = command(line)
    assert (name, words["file"], words["line"]) == ("error", file.name, "1")
    assert data == told["message"] and '"50%0A of\\r\\n::warning::x, %25"' in data
    assert "file=100%2525%3A a%2C b=c%25.json," in line


def test_a_message_gives_the_terminal_nothing_to_obey(zerocfg: Cli, tmp_path: Path) -> None:
    value = "\x1b[2Jcpu\r\x07\u202e"
    (tmp_path / "ds_config.json").write_text(json.dumps({"zero_optimization": {"stage": value}}))
    for form in ("full", "concise"):
        out = zerocfg("lint", "--select", "ZC106", "--output-format", form).out
        assert r'"\u001b[2Jcpu\r\u0007\u202e"' in out
        assert all(char.isprintable() or char == "\n" for char in out)


def test_services_get_names_from_the_root_of_the_checkout(
    zerocfg: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a step is started in a folder of the repository, and for files that lie beside it."""
    inside = tmp_path / "training"
    inside.mkdir()
    (tmp_path / "accelerate.yaml").write_text(YAML + DEAD)
    (inside / "größe.yaml").write_text(YAML + DEAD)
    monkeypatch.chdir(inside)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path))
    wanted = {"accelerate.yaml", "training/größe.yaml"}

    def report(form: str) -> str:
        return zerocfg("lint", "..", "--output-format", form).out

    assert {command(line)[1]["file"] for line in report("github").splitlines()[:-1]} == wanted
    assert {entry["location"]["path"] for entry in json.loads(report("gitlab"))} == wanted
    results = json.loads(report("sarif"))["runs"][0]["results"]
    places = {one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in results}
    assert {unquote(uri) for uri in places} == wanted
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path / "elsewhere"))
    assert {entry["location"]["path"] for entry in json.loads(report("gitlab"))} != wanted


def test_several_reports_of_one_run(zerocfg: Cli, pitfalls: Path) -> None:
    words = ("concise", "sarif=lint.sarif", "junit=out.xml")
    outcome = zerocfg("lint", *(word for one in words for word in ("--output-format", one)))
    assert outcome.code == 1 and "error[ZC201]" in outcome.out
    assert json.loads((pitfalls / "lint.sarif").read_text())["version"] == "2.1.0"
    assert (pitfalls / "out.xml").read_text().startswith("<?xml")
    written = zerocfg("lint", "--output-format", "json", "--output-file", "lint.json", "--exit-zero")
    assert (written.code, written.out) == (0, "")
    assert json.loads((pitfalls / "lint.json").read_text())["version"] == 1


def test_reports_make_their_folders_and_exit_zero_hides_no_wrong_use(zerocfg: Cli, pitfalls: Path) -> None:
    words = (
        "--output-format",
        "sarif=reports/all/lint.sarif",
        "--output-format",
        "full",
        "--output-file",
        "reports/a.txt",
    )
    told = zerocfg("lint", *words, "--exit-zero")
    assert (told.code, told.out) == (0, "")
    assert "error[ZC201]" in (pitfalls / "reports" / "a.txt").read_text()
    assert (pitfalls / "reports" / "all" / "lint.sarif").is_file()
    assert zerocfg("lint", "--exit-zero", "no-such-file").code == 2


def test_from_which_severity_on_a_run_fails(zerocfg: Cli, tmp_path: Path) -> None:
    """Whatever is told: a file with a note alone, then one with an error."""
    for text, severity, codes in (
        (YAML + "tpu_use_sudo: true\n", "note", (1, 0, 0)),
        (YAML + DEAD, "error", (1, 1, 1)),
    ):
        (tmp_path / "accelerate.yaml").write_text(text)
        (told,) = json.loads(zerocfg("lint", "--notes", "--output-format", "json").out)["diagnostics"]
        assert told["severity"] == severity
        for threshold, code in zip(("note", "warning", "error"), codes, strict=True):
            for more in ((), ("--statistics",), ("--output-format", "junit")):
                assert zerocfg("lint", "--fail-on", threshold, *more).code == code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output-format", "xml"], "'xml' is none of"),
        (["--output-format", "html"], "--output-format html is for --repos"),
        (["--output-format", "sarif="], "names no file"),
        (["--output-format", "full", "--output-format", "json"], "cannot both go to standard output"),
        (["--output-format", "sarif=a", "--output-format", "junit=a"], "cannot both go to 'a'"),
        (["--output-format", "sarif=a", "--output-file", "b"], "--output-file is for one"),
        (["--output-format", "sarif", "--statistics"], "--statistics needs --output-format"),
        (["--output-file", "accelerate.yaml/x"], "cannot be written"),
        (["--watch", "--statistics"], "--watch only looks"),
    ],
)
def test_wrong_use(words: list[str], said: str, zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(YAML)
    outcome = zerocfg("lint", *words)
    assert outcome.code == 2 and said in outcome.err


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=20))
def test_any_value_gives_documents_that_can_be_read(zerocfg: Cli, tmp_path: Path, value: str) -> None:
    """Control characters, lone surrogates, emojis: what stands in a config must not break the report."""
    text = json.dumps({"zero_optimization": {"stage": 2}, "train_batch_size": value, f"k{value}": 1})
    (tmp_path / "ds_config.json").write_text(text)
    sarif(zerocfg("lint", "--output-format", "sarif"))
    junitparser.JUnitXml.fromstring(zerocfg("lint", "--output-format", "junit").out.encode())
    json.loads(zerocfg("lint", "--output-format", "gitlab").out)
    *commands, end = zerocfg("lint", "--output-format", "github").out.split("\n")
    assert end == "" and all(line.startswith(("::", "Found ", "All ")) for line in commands)
