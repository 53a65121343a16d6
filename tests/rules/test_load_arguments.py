"""ZC878: keywords of `from_pretrained` that releases of transformers refuse, where a script certainly loads a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

Lint = Callable[..., list[tuple[str, str, int]]]
IMPORTS = """\
import sys

import fire
import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from transformers import BartForSequenceClassification, LlamaForCausalLM, PreTrainedModel, Trainer, TrainingArguments
"""
TRAIN = """\
args = TrainingArguments(output_dir="o")
Trainer(model=model, args=args, train_dataset=data).train()
"""
LOAD = 'AutoModelForCausalLM.from_pretrained("org/m", load_in_8bit=True)'


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lint:
    """Severity, message and line, counted from the first of the given ones, of what is found."""

    def ask(
        code: str, requirements: str = "", line: str = "torchrun train.py", **files: str
    ) -> list[tuple[str, str, int]]:
        (tmp_path / "train.py").write_text(f"{IMPORTS}{code}\n{TRAIN}", encoding="utf-8")
        (tmp_path / "train.sh").write_text(f"{line}\n", encoding="utf-8")
        (tmp_path / "requirements.txt").write_text(requirements, encoding="utf-8")
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        found = Job([tmp_path], Settings(), Selection(select=("ZC878",))).lint().diagnostics
        return [(one.severity.value, one.message, one.span.start.line - IMPORTS.count("\n")) for one in found]

    return ask


@pytest.mark.parametrize(
    ("keyword", "requirements", "severities"),
    [
        ("load_in_8bit=True", "", ["warning"]),
        ("load_in_8bit=False", "", ["warning"]),
        ("load_in_4bit=flag", "", ["warning"]),
        ("use_auth_token=None", "", ["warning"]),
        ("resume_download=True", "", ["warning"]),
        ("use_flash_attention_2=True", "", ["warning"]),
        ("load_in_8bit=True", "transformers\n", ["warning"]),
        ("load_in_8bit=True", "transformers>=4.40\n", ["warning"]),
        ("load_in_8bit=True", "transformers>=5\n", ["error"]),
        ("load_in_8bit=True", "transformers==5.0.0\n", ["error"]),
        ("load_in_8bit=True", "transformers==4.57.6\n", []),
        ("load_in_8bit=True", "transformers<5\n", []),
        ("load_in_8bit=True", "transformers @ git+https://github.com/huggingface/transformers\n", []),
        ("token=True", "", []),
        ("low_cpu_mem_usage=True", "", []),
        ("torch_dtype=torch.bfloat16", "", []),
        ("use_cache=False", "", []),
        ("attn_implementation='sdpa'", "", []),
        ("return_dict=True", "", []),
        ("offload_state_dict=True", "", []),
        ("of_the_model=True", "", []),  # of a config, or an error in every release
    ],
)
def test_by_what_the_project_admits(keyword: str, requirements: str, severities: list[str], lint: Lint) -> None:
    found = lint(f'model = AutoModelForCausalLM.from_pretrained("org/m", {keyword})', requirements)
    assert [severity for severity, *_ in found] == severities


@pytest.mark.parametrize(
    ("load", "found"),
    [
        ('LlamaForCausalLM.from_pretrained("m", load_in_8bit=True)', True),
        ('transformers.LlamaForCausalLM.from_pretrained("m", load_in_8bit=True)', True),
        ('LlamaForCausalLM.from_pretrained("m", load_in_8bit=True, trust_remote_code=True)', True),
        ('LlamaForCausalLM.from_pretrained("m", load_in_8bit=True, **more)', True),
        ('AutoModel.from_pretrained("bert-base-uncased", load_in_8bit=True)', True),
        ('AutoModel.from_pretrained("m", load_in_8bit=True)', False),
        ('AutoModelForCausalLM.from_pretrained("m", load_in_8bit=True, trust_remote_code=False)', True),
        ('AutoModelForCausalLM.from_pretrained("m", load_in_8bit=True, trust_remote_code=True)', False),
        ('AutoModelForCausalLM.from_pretrained("m", load_in_8bit=True, trust_remote_code=trusts)', False),
        ('AutoModelForCausalLM.from_pretrained("m", load_in_8bit=True, **more)', False),
        ('AutoModelForCausalLM.from_pretrained("m", load_in_8bit=True, trust_remote_code=False, **more)', True),
        # whose repositories hold no code
        ('AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", load_in_8bit=True, trust_remote_code=True)', True),
        ('AutoModelForCausalLM.from_pretrained("Qwen/Qwen-7B", load_in_8bit=True, trust_remote_code=True)', False),
        # which the Auto class does not have at all
        ('AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-VL-3B", load_in_8bit=True)', False),
        # classes that take any keyword
        ('BartForSequenceClassification.from_pretrained("m", load_in_8bit=True)', False),
        ('AutoModelForSequenceClassification.from_pretrained("roberta-base", load_in_8bit=True)', True),
        ('AutoModelForSequenceClassification.from_pretrained("facebook/bart-large", load_in_8bit=True)', False),
        ('AutoModelForSequenceClassification.from_pretrained("org/model", load_in_8bit=True)', False),
        # others that have the keyword, or may
        ('AutoTokenizer.from_pretrained("m", use_auth_token=True)', False),
        ('AutoConfig.from_pretrained("m", use_auth_token=True)', False),
        ('PreTrainedModel.from_pretrained("m", use_auth_token=True)', False),
        ('other.AutoModelForCausalLM.from_pretrained("m", load_in_8bit=True)', False),
        ("AutoModelForCausalLM.from_config(config, load_in_8bit=True)", False),
        ('AutoModelForCausalLM.from_pretrained("m", quantization_config=BitsAndBytesConfig(load_in_8bit=True))', False),
    ],
)
def test_which_loads(load: str, found: bool, lint: Lint) -> None:
    assert bool(lint(f"model = {load}")) is found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (f"model = {LOAD}", True),
        (f"with torch.device('cuda'):\n    model = {LOAD}", True),
        (f"def main():\n    return {LOAD}\n\n\nmodel = main()", True),
        (
            f"def load():\n    return {LOAD}\n\n\ndef main():\n    return load()\n\n\n"
            "if __name__ == '__main__':\n    main()",
            True,
        ),
        (f"def main():\n    def load():\n        return {LOAD}\n    return load()\n\n\nmodel = main()", True),
        (f"def main(model='m'):\n    {LOAD}\n\n\nfire.Fire(main)", True),
        (f"class Of:\n    def load(self):\n        self.model = {LOAD}\n\n\nof = Of()\nof.load()", True),
        (
            f"class Of:\n    def __init__(self):\n        self.load()\n\n    def load(self):\n        {LOAD}\n\n\nOf()",
            True,
        ),
        (f"class A:\n    def load(self):\n        {LOAD}\n\n\nclass B(A): ...\n\n\nB().load()", True),
        (f"try:\n    model = {LOAD}\nexcept Exception as error:\n    print(error)\n    raise", True),
        (f"try:\n    model = {LOAD}\nexcept Exception as error:\n    print(error)\n    sys.exit(1)", True),
        (f"try:\n    model = {LOAD}\nfinally:\n    print()", True),
        (f"try:\n    model = {LOAD}\nexcept OSError:\n    model = None", True),
        (f"try:\n    model = {LOAD}\nexcept Exception:\n    model = None", False),
        (f"try:\n    model = {LOAD}\nexcept:\n    model = None", False),
        (f"try:\n    import x\nexcept ImportError:\n    model = {LOAD}", False),
        (f"if flag:\n    model = {LOAD}", False),
        (f"if not flag:\n    pass\nelse:\n    model = {LOAD}", False),
        (f"model = {LOAD} if flag else None", False),
        (f"model = flag and {LOAD}", False),
        (f"for name in names:\n    model = {LOAD}", False),
        (f"models = [{LOAD} for name in names]", False),
        (f"load = lambda: {LOAD}", False),
        (f"def load():\n    return {LOAD}", False),
        (f"def load():\n    return {LOAD}\n\n\nif flag:\n    load()", False),
        (f"def load():\n    yield {LOAD}\n\n\nmodels = load()", False),
        (f"def main():\n    return 1\n    {LOAD}\n\n\nmain()", False),
        (f"raise SystemExit\nmodel = {LOAD}", False),
        (f"sys.exit(0)\nmodel = {LOAD}", False),
        (f"if transformers.__version__ < '5':\n    print()\nmodel = {LOAD}", False),
        (f"import unsloth\nmodel = {LOAD}", False),
        (f"AutoModelForCausalLM.register(Config, Model)\nmodel = {LOAD}", False),
        (
            f"class LlamaForCausalLM(LlamaForCausalLM): ...\n\n\n{LOAD.replace('AutoModel', 'Llama')}",
            False,
        ),
    ],
)
def test_what_the_script_certainly_comes_to(code: str, found: bool, lint: Lint) -> None:
    assert bool(lint(code)) is found


def test_in_a_module_that_the_script_imports(lint: Lint) -> None:
    text = f"from transformers import AutoModelForCausalLM\n\n\ndef load():\n    return {LOAD}\n"
    assert len(lint("import loading\nmodel = loading.load()", loading=text)) == 1
    assert len(lint("from loading import load\nmodel = load()", loading=text)) == 1
    assert lint("from loading import load", loading=text) == []


def test_the_words(lint: Lint) -> None:
    code = (
        'model = LlamaForCausalLM.from_pretrained("m", load_in_8bit=True)\n'
        'other = LlamaForCausalLM.from_pretrained("m", use_auth_token=True)'
    )
    assert lint(code, "torch\ntransformers>=4.40\n") == [
        (
            "warning",
            "transformers 5.0 no longer takes `load_in_8bit` and one more keyword in from_pretrained(): "
            "LlamaForCausalLM stops with a TypeError (from transformers 5.0.0 on; requirements.txt:2 admits >=4.40)",
            1,
        )
    ]
