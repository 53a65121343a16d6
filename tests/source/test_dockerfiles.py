"""Launch lines of Dockerfiles: what the container starts, and what the build runs, as Docker's reference describes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocfg.run.discover import is_launch_file, walk
from zerocfg.source.launch.dockerfile import stages
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.launch.line import LaunchLine
from zerocfg.source.text import SourceText

HEAD = "FROM python:3.12\n"


def _lines(text: str) -> list[LaunchLine]:
    return read_launch_lines(SourceText("Dockerfile", text)).lines


def _one(text: str) -> LaunchLine:
    (line,) = _lines(HEAD + text)
    return line


def _words(line: LaunchLine) -> tuple[str, list[str | None], str | None, list[str | None]]:
    options = [one for option in line.options for one in (option.name, option.value and option.value.value)]
    return line.launcher, options, line.script and line.script.value, [word.value for word in line.arguments]


LINE = "accelerate launch --num_processes 8 train.py --bf16 true"
TRAINS = ("accelerate", ["--num_processes", "8"], "train.py", ["--bf16", "true"])


@pytest.mark.parametrize(
    "text",
    [
        "CMD accelerate launch --num_processes 8 train.py --bf16 true\n",
        'CMD ["accelerate", "launch", "--num_processes", "8", "train.py", "--bf16", "true"]\n',
        'ENTRYPOINT ["accelerate", "launch", "--num_processes", "8"]\nCMD ["train.py", "--bf16", "true"]\n',
        'CMD ["train.py", "--bf16", "true"]\nENTRYPOINT ["accelerate", "launch", "--num_processes", "8"]\n',
        "ENTRYPOINT accelerate launch --num_processes 8 train.py --bf16 true\nCMD ignored words\n",
        "RUN accelerate launch --num_processes 8 train.py --bf16 true\n",
        "RUN pip install trl && accelerate launch --num_processes 8 train.py --bf16 true\n",
        'RUN ["accelerate", "launch", "--num_processes", "8", "train.py", "--bf16", "true"]\n',
        "CMD accelerate launch \\\n    --num_processes 8 \\\n    # how it trains\n\n    train.py --bf16 true\n",
        'CMD ["accelerate", "launch", \\\n  "--num_processes", "8", \\\n  "train.py", "--bf16", "true"]\n',
        'CMD ["bash", "-c", "accelerate launch --num_processes 8 train.py --bf16 true"]\n',
        "cmd accelerate launch --num_processes 8 train.py --bf16 true",
        "CMD echo first\nCMD accelerate launch --num_processes 8 train.py --bf16 true\n",
        "RUN --mount=type=cache --network=none \\\n accelerate launch --num_processes 8 train.py --bf16 true\n",
        "ENV N=8 ON=true\nCMD accelerate launch --num_processes $N train.py --bf16 ${ON}\n",
        "CMD accelerate launch --num_processes $N train.py --bf16 true\nENV N=8\n",
        "ENV N 8\nCMD accelerate launch --num_processes $N train.py --bf16 true\n",
        "ARG N=8\nRUN accelerate launch --num_processes $N train.py --bf16 true\n",
        "ARG N=8\nENV N=$N\nCMD accelerate launch --num_processes $N train.py --bf16 true\n",
        f"RUN <<EOF\nset -e\n{LINE}\nEOF\n",
        f"RUN --mount=type=cache <<'EOF'\n#!/bin/bash\nexport N=8\n{LINE}\nEOF\n",
        f'RUN bash -ex <<-"END"\n\t{LINE}\n\tEND\nCMD ls\n',
        f"RUN cat <<EOF > x\nRUN accelerate launch a.py\nEOF\nRUN {LINE}\n",
        f"RUN python3 <<E\nx = (\nE\nRUN {LINE}\n",
        f"RUN <<E\n#!/usr/bin/env python3\naccelerate launch a.py\nE\nCMD {LINE}",
        f"COPY <<A <<B /x/\nCMD accelerate launch a.py\nA\n(\nB\nCMD {LINE}\n",
        f"RUN echo 'x <<never y'\nCMD {LINE}\n",
    ],
)
def test_what_is_started(text: str) -> None:
    assert _words(_one(text)) == TRAINS


@pytest.mark.parametrize(
    "text",
    [
        "CMD accelerate launch train.py\nCMD bash\n",  # the last one counts
        'ENTRYPOINT ["/entrypoint.sh"]\nCMD ["accelerate", "launch", "train.py"]\n',  # what it does is not known
        'ENTRYPOINT ["sh"]\nCMD accelerate launch train.py\n',
        "# CMD accelerate launch train.py\n",
        "HEALTHCHECK CMD accelerate launch train.py\n",
        "ONBUILD RUN accelerate launch train.py\n",
        "LABEL how='accelerate launch train.py'\n",
        'CMD ["accelerate launch train.py"]\n',  # a program of this name
        "RUN pip install accelerate deepspeed\n",
        "COPY . /accelerate\n",
    ],
)
def test_what_starts_no_training(text: str) -> None:
    assert _lines(HEAD + text) == []


def test_another_escape_character_is_not_read() -> None:
    assert _lines(f"# escape=`\n{HEAD}CMD accelerate launch `\n  train.py\n") == []


def test_words_of_a_list_are_not_expanded() -> None:
    line = _one('ENV N=8\nCMD ["accelerate", "launch", "--num_processes", "$N", "train.py"]\n')
    assert _words(line)[1] == ["--num_processes", "$N"]


def test_a_build_argument_is_gone_when_the_container_starts() -> None:
    line = _one("ARG N=8\nCMD accelerate launch --num_processes $N train.py\n")
    assert _words(line)[1] == ["--num_processes", None]


def test_the_environment_of_a_stage() -> None:
    text = (
        "FROM python:3.12 AS base\nENV NCCL_DEBUG=INFO\nRUN accelerate launch one.py\n"
        "FROM python:3.12\nENV OMP_NUM_THREADS 4\nARG ONLY=1\nCMD WANDB_MODE=offline accelerate launch two.py\n"
    )
    first, second = _lines(text)
    assert first.environment == {"NCCL_DEBUG": "INFO"}
    assert second.environment == {"OMP_NUM_THREADS": "4", "WANDB_MODE": "offline"}


def test_a_run_leaves_neither_folder_nor_variables_behind() -> None:
    line = _one(
        "COPY . /app\nWORKDIR /app\nRUN cd sub && export N=4\nCMD accelerate launch --num_processes $N train.py\n"
    )
    assert (line.directory, _words(line)[1]) == (".", ["--num_processes", None])


FOLDERS = {
    # instructions before the launch line: the folder of the build context in which it runs
    "COPY . .\nWORKDIR /app\n": "app",
    "WORKDIR /app\nCOPY . .\n": ".",
    "WORKDIR /app\nCOPY . /app/\n": ".",
    "COPY . /app\nWORKDIR /app/src\n": "src",
    "COPY . /app\nWORKDIR /app\nWORKDIR src\n": "src",
    "COPY src/ /app\nWORKDIR /app\n": "src",
    "COPY src /app/src\nWORKDIR /app\n": ".",
    "WORKDIR /app\nCOPY requirements.txt ./\nCOPY . .\n": ".",
    "WORKDIR /app\nCOPY train.py recipe.yaml ./\n": ".",
    "WORKDIR /app\nCOPY jobs/train.py jobs/recipe.yaml ./\n": "jobs",
    "WORKDIR /app\nADD . /app\n": ".",
    "WORKDIR /app\n": None,  # what is mounted there
    "WORKDIR /app\nCOPY --from=build /app /app\n": None,
    "WORKDIR /app\nCOPY a ./\nCOPY b ./\n": None,
    "WORKDIR $HOME\nCOPY . .\n": None,
}


@pytest.mark.parametrize("before", FOLDERS)
def test_the_folder_of_the_build_context(before: str) -> None:
    line = _one(f"{before}CMD accelerate launch train.py\n")
    wanted = FOLDERS[before]
    assert line.directory == wanted


def test_whole_paths_of_the_image() -> None:
    """Those below a copied folder are paths of the build context; others stay what they are."""
    line = _one(
        "WORKDIR /app\nCOPY . /app\nCMD accelerate launch --config_file /app/configs/a.yaml /app/train.py "
        "--deepspeed=/app/ds.json --output_dir /data/app\n"
    )
    assert _words(line) == (
        *("accelerate", ["--config_file", "configs/a.yaml"], "train.py"),
        ["--deepspeed=ds.json", "--output_dir", "/data/app"],
    )


def test_places() -> None:
    text = f'{HEAD}ENV N=8\nCMD ["accelerate", "launch", "train.py", \\\n  "--bf16", "true"]\n'
    line = read_launch_lines(SourceText("Dockerfile", text)).lines[0]
    (option,) = line.script_options
    assert text[slice(*option.span)] == '"--bf16", "true"'
    assert not any(word.exact for word in line.arguments), "an edit of a word would leave quotes and commas"
    shell = f"{HEAD}CMD accelerate launch train.py \\\n  --bf16 true\n"
    (option,) = read_launch_lines(SourceText("Dockerfile", shell)).lines[0].script_options
    assert shell[slice(*option.span)] == "--bf16 true" and option.exact


def test_names_of_dockerfiles(tmp_path: Path) -> None:
    names = ["Dockerfile", "Dockerfile.gpu", "train.dockerfile", "Containerfile", "docker/dockerfile-cuda"]
    others = ["dockerfile_tools.py", "Dockerfile.json", "my-Dockerfile", "docker.conf"]
    for name in (*names, *others):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [name for name in (*names, *others) if is_launch_file(Path(name))] == names
    assert sorted(path.relative_to(tmp_path).as_posix() for path in walk(tmp_path)) == sorted([*names, others[1]])


_PIECES = st.sampled_from(
    [
        *(
            "FROM a\n",
            "CMD ",
            "RUN ",
            "ENTRYPOINT ",
            "ENV ",
            "ARG ",
            "WORKDIR ",
            "COPY ",
            "--from=x ",
            "\\\n",
            "\n",
            "# c\n",
        ),
        *(
            '["',
            '", "',
            '"]',
            "'",
            '"',
            "$N",
            "${N",
            "/app",
            ". ",
            "a=b ",
            "a b ",
            "accelerate launch ",
            "train.py ",
            "\0",
        ),
    ]
)


@given(st.lists(_PIECES, max_size=25).map("".join))
def test_any_text_keeps_its_places(text: str) -> None:
    for stage in stages(text):
        assert len(stage.text) == len(stage.at)
        assert all(0 <= place < len(text) for place in stage.at)
    read_launch_lines(SourceText("Dockerfile", f"{text}# accelerate"))
