"""Who says who reads a run."""

from __future__ import annotations

from dataclasses import replace

from zerocfg.report.runs import render_runs, why
from zerocfg.run.model import Origin, ReaderEvidence, Run, Script, Setting, SourceFile
from zerocfg.run.reader import reader_evidence
from zerocfg.run.resolve_settings import with_consumer
from zerocfg.source.text import SourceText, Span
from zerocfg.workspace.job import assume_consumer

TRAIN = SourceFile("train.py", "script", SourceText("train.py", "import x\nx.Trainer()\n"))
CALL = Origin("file", file=TRAIN, span=Span(9, 20))


def test_nobody() -> None:
    assert reader_evidence(Run("a")) is None
    assert why(Run("a")) == ""


def test_a_script_before_the_options_of_its_line() -> None:
    option = Origin("flag", "--deepspeed")
    run = Run(
        "a",
        consumer="transformers",
        deepspeed_route="trainer",
        arguments={"deepspeed": Setting("ds.json", option)},
        script=Script(TRAIN, "transformers", CALL, files=(TRAIN,)),
    )
    assert reader_evidence(run) == ReaderEvidence("script", CALL)
    assert why(run) == ", says the training script at train.py:2:1"
    assert reader_evidence(replace(run, script=None)) == ReaderEvidence("option", option)
    other = replace(run, script=Script(TRAIN, "accelerate", CALL))
    assert reader_evidence(other) == ReaderEvidence("option", option), "what the script shows was not taken"


def test_what_was_said_outright_stands() -> None:
    run = Run(
        "a", consumer="trl", reader_evidence=ReaderEvidence("path", pattern="*.py"), script=Script(TRAIN, "trl", CALL)
    )
    assert reader_evidence(run) == ReaderEvidence("path", pattern="*.py")
    assert why(run) == ", says `consumers` in the settings for *.py"


def test_another_framework_is_no_gap_for_the_settings() -> None:
    run = Run("a", script=Script(TRAIN, None, CALL, foreign="lightning", files=(TRAIN,)))
    assert assume_consumer([run], "transformers") == [run]
    assert "  read by    lightning, says the training script at train.py:2:1\n" in render_runs([run])
    (read,) = assume_consumer([Run("b")], "transformers")
    assert (read.consumer, reader_evidence(read)) == ("transformers", ReaderEvidence("settings"))


def test_how_a_config_reaches_its_reader() -> None:
    """The route follows the reader: nobody but a Trainer reads what was given to one."""
    rows = [
        (None, "deepspeed", "engine"),
        ("trainer", "deepspeed", "engine"),
        ("accelerate", "deepspeed", "accelerate"),
        ("trainer", "accelerate", "accelerate"),
        ("engine", "accelerate", "accelerate"),
        (None, "accelerate", None),
        ("engine", "trl", "trainer"),
        ("accelerate", "transformers", "accelerate"),
        (None, "transformers", None),
    ]
    for route, consumer, expected in rows:
        run = with_consumer(Run("a", deepspeed_route=route), consumer)  # type: ignore[arg-type]
        assert (run.consumer, run.deepspeed_route) == (consumer, expected)
