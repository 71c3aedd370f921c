"""The READMEs are followed as a user would: their commands run, their examples work and pass the contracts."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes import fresh

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIALS = [*ROOT.glob("docs/tutorials/*.md"), *ROOT.glob("docs/how-to/*.md")]
GUIDES = {path: path.read_text(encoding="utf-8") for path in sorted([*ROOT.glob("[a-z]*/README.md"), *TUTORIALS])}
"""READMEs of the folders, tutorials and how-to pages."""
RUN_BY_CI = {"make bench-small", "make test", "make setup"}
"""Commands that .ci/run carries out itself."""
ON_A_CLUSTER = "### On a cluster"
"""What this section says to run is run by `make test-slurm`, on a cluster."""
MY_GRID = "my.yaml"
"""What the README says to save its grid as, which names its example initialiser."""
TRAINS = pytest.mark.examples


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands() -> list[str]:
    before, _, after = README.partition(ON_A_CLUSTER)
    here = "\n".join([before + after[after.index("\n## ") :], *GUIDES.values()])
    lines = [line.partition("#")[0].strip() for block in blocks("bash", here) for line in block.splitlines()]
    return [line for line in lines if line]


def of_my_grid(line: str) -> bool:
    return MY_GRID in line or line.endswith(" my")


def examples() -> dict[str, str]:
    """Python code by the file that a text says to put it into."""
    found = {}
    for text in (README, *GUIDES.values()):
        named = re.findall(r"such as\s+`([\w/]+\.py)`[^`]*(?:`[^`]*`[^`]*)*?```python\n(.*?)```", text, flags=re.DOTALL)
        assert [code for _, code in named] == blocks("python", text), "every example names its file"
        found.update(named)
    return found


def run(line: str, cwd: Path) -> subprocess.CompletedProcess:
    """A README command, with the interpreter of these tests in place of the activated environment."""
    program, *words = shlex.split(line)
    module = ["-m", "vitinit.runners.cli"] if program == "vitinit" else []
    return fresh(*module, *words, cwd=cwd, path=(cwd if (cwd / "runners").exists() else ROOT,))


def test_ci_runs_the_two_commands():
    ci = (ROOT / ".ci/run").read_text() + (ROOT / ".ci/bare").read_text()
    for command in ("make bench-small", "make test"):
        assert re.search(rf"make (PYTHON=\S+ )?{command.removeprefix('make ')}$", ci, re.MULTILINE), command
        assert command in commands()
    assert "make test-slurm" in ci, "runs the commands of the section on clusters"


@TRAINS
def test_every_other_command_works(tmp_path):
    others = [line for line in commands() if line not in RUN_BY_CI and not line.startswith("source ")]
    others = [line for line in dict.fromkeys(others) if not of_my_grid(line)]
    assert len(others) > 4
    for line in others:
        done = run(line, tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert {path.name for path in (tmp_path / "results/local/smoke/tables").iterdir()} >= {
        "smoke.tex",
        "smoke_initialization.tex",
    }
    for lines in [code for path in TUTORIALS for code in blocks("py", GUIDES[path])]:
        done = run("python -c " + shlex.quote(lines), tmp_path)
        assert done.returncode == 0, f"{lines}\n{done.stderr}"


HELPS = """
import contextlib, json, runpy, sys
for program, *words in json.loads(sys.argv.pop()):
    module = words.pop(1) if program == "python" else "vitinit.runners.cli"
    sys.argv[1:] = [*words[program == "python" :], "--help"]
    with contextlib.suppress(SystemExit):
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    print("\\0")
"""


def options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def of_program(code: str) -> tuple[str, set[str]]:
    """The program that inline code calls, which is "" where it is options alone, and the options it is given."""
    _, module, after = code.partition("-m ") if code.startswith(("python ", "torchrun ")) else ("", "", code)
    words = after.replace("vitinit.runners.cli", "vitinit").split()
    if not module and words[:1] != ["vitinit"]:
        return "", options(code) if code.startswith("--") else set()
    length = {"vitinit": 3 if words[1:2] == ["data"] else 2}.get(words[0], 1)
    return " ".join(["python -m"] * (words[0] != "vitinit") + words[:length]), options(after)


def test_options_named_in_the_readmes_exist():
    prose = [re.sub(r"```.*?```", "", text, flags=re.DOTALL) for text in (README, *GUIDES.values())]
    named = [of_program(code) for text in prose for code in re.findall(r"`([^`]+)`", text)]
    named = [(program, given) for program, given in named if given]
    assert len({program for program, _ in named}) > 3
    alone = {"vitinit run", "vitinit rank"} | {
        f"python -m analysis.{name}" for name in ("tables", "curves", "choose", "pages", "report", "figures")
    }
    programs = sorted(alone | {program for program, _ in named} - {""})
    done = fresh("-c", HELPS, json.dumps([program.split() for program in programs]), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    known = {program: options(said) for program, said in zip(programs, done.stdout.split("\0"), strict=False)}
    for program, given in named:
        assert any(given <= known[each] for each in ([program] if program else programs)), (program, given)


def test_links_lead_somewhere():
    assert "](" in README
    for path, text in {ROOT / "README.md": README, **GUIDES}.items():
        links = re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text)
        for file, heading in links:
            target = path.parent / file if file else path
            assert target.exists(), f"{path}: {file}"
            if heading:
                titles = re.findall(r"^#+ (.*)", target.read_text(encoding="utf-8"), flags=re.MULTILINE)
                assert heading in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the packages with the examples of the texts dropped in."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("analysis", "benchmark", "initializers", "runners", "slurm", "tests", "vitinit"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("published", "reference/small"):
        shutil.copytree(ROOT / "results" / name, copy / "results" / name)
    shutil.copy(ROOT / "pyproject.toml", copy)
    for file, source in examples().items():
        assert len(source.splitlines()) <= 32
        assert not (copy / file).exists()
        (copy / file).write_text(source)
    (grid,) = blocks("yaml")
    (copy / MY_GRID).write_text(grid)
    return copy


@TRAINS
def test_the_grid_of_the_readme_runs_and_the_examples_are_found(checkout):
    listed = run("vitinit list initializers", checkout).stdout
    assert "identity_value" in listed
    assert "gain = 0.5" in listed
    lines = [line for line in commands() if of_my_grid(line)]
    assert f"vitinit run {MY_GRID}" in lines
    said = {}
    for line in lines:
        done = run(line + (" --executor inline" if line.startswith("vitinit run") else ""), checkout)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        said[line] = done.stdout
    assert "9 runs finished" in said[f"vitinit run {MY_GRID}"]
    assert "Identity value" in said["python -m analysis.tables --study my"]
    assert "Seconds a run takes" in (checkout / "results/local/my/tables/my_seconds.tex").read_text()


@TRAINS
def test_the_lines_for_a_model_of_ones_own_run():
    (lines,) = blocks("py")
    done = run("python -c " + shlex.quote(lines), ROOT)
    assert done.returncode == 0, done.stderr
    assert "mimetic" in done.stdout


@TRAINS
def test_every_other_grid_of_the_texts_is_planned(checkout):
    grids = [grid for text in GUIDES.values() for grid in blocks("yaml", text)]
    assert grids
    for number, grid in enumerate(grids):
        (checkout / f"text{number}.yaml").write_text(grid)
        done = run(f"vitinit plan text{number}.yaml", checkout)
        assert done.returncode == 0, done.stdout + done.stderr


@TRAINS
def test_the_example_dataset_and_family_train(checkout):
    (checkout / "both.yaml").write_text(
        "title: both\n"
        "rows:\n  Trunc normal: {base: trunc_normal}\n"
        "blocks:\n  - datasets: [stripes]\n"
        "    model: {preset: vit_qk_norm_micro, image_size: 8, patch_size: 2}\n"
        "    recipe: {name: small, epochs: 1}\n    seeds: [0]\n"
    )
    done = run("vitinit run both.yaml --executor inline", checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 run finished" in done.stdout


@TRAINS
@pytest.mark.parametrize(
    ("tests", "of"),
    [
        ("initializers/test_contract.py", "identity_value"),
        ("benchmark/test_dataset_contract.py", "stripes"),
        ("benchmark/test_model_contract.py", "vit_qk_norm"),
        ("analysis/test_table_contract.py", "_seconds"),
        ("benchmark/test_metrics.py", "confidence"),
    ],
)
def test_the_contract_tests_run_over_the_examples_with_no_edit(checkout, tests, of):
    done = run(f"python -m pytest tests/{tests} -k {of} -p no:xdist -m ''", checkout)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout).group(1)) >= 1, done.stdout
