"""The texts and examples are followed as a user would: their commands run, what they train learns."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.processes import ROOT, VITINIT

FILES = [ROOT / "README.md", *sorted(ROOT.glob("[a-z]*/README.md")), *sorted(ROOT.glob("docs/*/*.md"))]
TEXTS = {path: path.read_text(encoding="utf-8") for path in FILES}
README = TEXTS[FILES[0]]
RUN_BY_CI = ("make bench-small", "make test", "source .venv/bin/activate")
"""Commands that .ci/run carries out itself."""
ON_A_CLUSTER = r"### On a cluster.*?\n## "
"""`make test-slurm` runs the commands of this section on a cluster."""
MY_GRID = "my.yaml"
TRAINS = pytest.mark.examples


def blocks(language, text):
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands():
    text = re.sub(ON_A_CLUSTER, "\n## ", "\n".join(TEXTS.values()), count=1, flags=re.DOTALL)
    lines = [line.partition("#")[0].strip() for block in blocks("bash", text) for line in block.splitlines()]
    return [line for line in dict.fromkeys(lines) if line and line not in RUN_BY_CI]


def of_my_grid(line):
    return MY_GRID in line or line.endswith(" my")


def run(line, cwd, **environment):
    """Output of a command, with the interpreter of these tests in place of the activated environment."""
    program, *words = shlex.split(line)
    python = VITINIT if program == "vitinit" else [sys.executable]
    env = {
        **os.environ,
        "COLUMNS": "200",
        "PYTHONPATH": str(cwd if (cwd / "runners").exists() else ROOT),
        **environment,
    }
    done = subprocess.run([*python, *words], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the packages with the examples of the texts in the files that these name."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("analysis", "benchmark", "initializers", "runners", "slurm", "tests", "vitinit"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("published", "reference/small"):
        shutil.copytree(ROOT / "results" / name, copy / "results" / name)
    shutil.copy(ROOT / "pyproject.toml", copy)
    for text in TEXTS.values():
        named = re.findall(r"such as\s+`([\w/]+\.py)`[^`]*(?:`[^`]*`[^`]*)*?```python\n(.*?)```", text, flags=re.DOTALL)
        assert [code for _, code in named] == blocks("python", text), "every example names its file"
        for file, source in named:
            assert not (copy / file).exists()
            (copy / file).write_text(source)
    (copy / MY_GRID).write_text(blocks("yaml", README)[0])
    return copy


@TRAINS
def test_every_command_and_line_of_python_works(tmp_path):
    lines = [line for line in commands() if not of_my_grid(line)]
    assert len(lines) > 10
    for line in lines:
        run(line, tmp_path)
    assert (tmp_path / "results/local/smoke/tables/smoke.tex").exists()
    for code in blocks("py", "\n".join(TEXTS.values())):
        assert run("python -c " + shlex.quote(code), tmp_path)


def test_options_named_in_the_texts_exist():
    prose = [re.sub(r"```.*?```", "", text, flags=re.DOTALL) for text in TEXTS.values()]
    named = {}
    for code in (code for text in prose for code in re.findall(r"`([^`]+)`", text)):
        program = re.match(r"(python -m [\w.]+|vitinit (?:(?:data|store|slurm) )?[a-z]+)?", code)[0]
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", code if program or code[0] == "-" else ""):
            named[program.replace("python -m analysis.", "vitinit "), option] = code
    text = (
        (ROOT / "tests/golden/cli/options.txt")
        .read_text(encoding="utf-8")
        .replace("python -m vitinit.analysis.", "vitinit ")
    )
    known = dict(re.findall(r"^\$ (.*?) --help.*?\n(.*?)^exit", text, re.MULTILINE | re.DOTALL))
    for (program, option), code in named.items():
        assert any(option in known[each].split() for each in ([program] if program else known)), code


@TRAINS
def test_the_grid_of_the_readme_runs_with_its_method(checkout):
    assert "gain = 0.5" in run("vitinit list initializers identity_value", checkout)
    first, *others = [line for line in commands() if of_my_grid(line)]
    assert "9 runs finished" in run(f"{first} --executor inline", checkout)
    assert any("Identity value" in run(line, checkout) for line in others)
    assert "Seconds that a run takes" in (checkout / "results/local/my/tables/my_seconds.tex").read_text()


@TRAINS
def test_every_other_grid_of_the_texts_is_planned(vitinit, checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    for grid in blocks("yaml", "\n".join(TEXTS.values()))[1:]:
        (checkout / "text.yaml").write_text(grid)
        code, _, error = vitinit("plan text.yaml")
        assert code == 0, f"{error}{grid}"


@TRAINS
def test_the_example_dataset_and_family_train(checkout):
    (checkout / "both.yaml").write_text(
        "title: both\nrows: {Trunc normal: {base: trunc_normal}}\nblocks:\n  - datasets: [stripes]\n"
        "    model: {preset: vit_qk_norm_micro, image_size: 8, patch_size: 2}\n"
        "    recipe: {name: small, epochs: 1}\n    seeds: [0]\n"
    )
    assert "1 run finished" in run("vitinit run both.yaml --executor inline", checkout)


@TRAINS
def test_the_contract_tests_cover_the_examples_with_no_edit(checkout):
    examples = ["identity_value", "stripes", "vit_qk_norm", "confidence"]
    files = [str(path) for path in (checkout / "tests").rglob("test_*contract*.py")]
    files += ["tests/benchmark/test_metrics.py", "tests/benchmark/test_models.py"]
    done = run(f"python -m pytest {shlex.join(files)} -k '{' or '.join(examples)}' -p no:xdist -m '' -rp", checkout)
    for example in examples:
        assert re.search(f"^PASSED .*{example}", done, re.MULTILINE)


# --- examples of docs/ ---


EXAMPLES = ROOT / "docs/examples"


def printed(path, cwd):
    (code,) = blocks("python3", path.read_text(encoding="utf-8"))
    return run("python -c " + shlex.quote(code), cwd, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")


@TRAINS
def test_random_filters_miss_nothing_from_k_f_squared_channels_on(tmp_path):
    lines = re.findall(
        r"D = (\S+) k f\^2 = \d+: random (\S+), box (\S+)", printed(EXAMPLES / "proposition.md", tmp_path)
    )
    assert {float(share): float(random) < 1e-9 for share, random, _ in lines} == {0.5: False, 1.0: True, 2.0: True}
    assert all(float(box) > 0.1 for _, _, box in lines), "one and the same filter is never enough"


@TRAINS
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("with_*.md")), ids=lambda path: path.stem)
def test_the_loss_of_an_example_falls(path, tmp_path):
    text = printed(path, tmp_path)
    losses = [float(loss) for loss in re.findall(r"\bloss'?:? '?([\d.]+)", text)]
    assert "tensors changed" in text
    assert losses[-1] < 0.8 * losses[0]
