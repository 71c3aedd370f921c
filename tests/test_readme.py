"""The READMEs are followed as a user would: their commands run, their examples work and pass the contracts."""

import re
import shutil
import subprocess
from pathlib import Path
from statistics import mean as mean_of
from statistics import stdev

import pytest

from analysis.frame import load
from analysis.published import publication
from analysis.tables import render
from analysis.tables.registry import build
from tests.analysis.table_texts import columns
from tests.processes import fresh

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDES = {path: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("[a-z]*/README.md"))}
"""Those of the folders."""
STUDIES = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
RUN_BY_CI = {"make bench-small", "make test", "make setup"}
"""Commands that .ci/run carries out itself."""
ON_A_CLUSTER = "### On a cluster"
"""What this section says to run is run by `make test-slurm`, on a cluster."""
MY_GRID = "my.yaml"
"""What the README says to save its grid as, which names its example initialiser."""


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
    program, *words = line.split()
    module = ["-m", "runners.cli"] if program == "vitinit" else []
    return fresh(*module, *words, cwd=cwd, path=(cwd if (cwd / "runners").exists() else ROOT,))


def test_ci_runs_the_two_commands():
    ci = (ROOT / ".ci/run").read_text()
    for command in ("make bench-small", "make test"):
        assert command in ci, command
        assert command in commands()
    assert "make test-slurm" in ci, "runs the commands of the section on clusters"


def test_every_other_command_works(tmp_path):
    others = [line for line in commands() if line not in RUN_BY_CI and not line.startswith("source ")]
    others = [line for line in others if not of_my_grid(line)]
    assert len(others) > 4
    for line in others:
        done = run(line, tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert {path.name for path in (tmp_path / "results/local/smoke/tables").iterdir()} >= {
        "smoke.tex",
        "smoke_initialization.tex",
    }


def test_its_numbers_are_those_of_the_tables():
    study = load([ROOT / "results/reference"], "small")
    table = build(study)
    shown = render.columns(table)
    for line, row in zip(numbers("## What comes out"), table.rows, strict=True):
        label, *texts = line
        assert label.startswith(row)
        (digits, cifar) = (column.parts[0] for column in shown)
        assert texts == [f"**{p.texts[row]}**" if row in p.bold else p.texts[row] for p in (digits, cifar)]
    assert set(table.baselines.values()) == {"Kaiming uniform"}
    bases = columns(build(study, baseline="Kaiming uniform"))[1].entries["Trunc normal"]
    assert f'(`--baseline "Kaiming uniform"`: {bases.ours[1]})' in STUDIES
    paper = [cell.value for cell in publication("2404.01139").tables["Table 2"].cells if cell.column == "CIFAR-10"]
    stated = re.search(r"Context: for ViT-T on all of CIFAR-10, (.*?)\. That is", STUDIES, flags=re.DOTALL)
    assert [float(x) for x in re.findall(r"\d\d\.\d\d", stated[1])] == paper


def test_its_differences_to_the_own_base_are_those_of_the_tables():
    table = build(load([ROOT / "results/reference"], "table2-small"))
    shown = columns(table)[:2]
    bases = {"": "", "Kaiming uniform": "", "Trunc normal": "Trunc normal + "}
    base, rows = "", {}
    for label, method, *texts in numbers("## Each method over both bases", STUDIES):
        base = label or base
        row = bases[base] + method[:1].upper() + method[1:] if method else base
        rows[row] = [(texts[0], texts[1]), (texts[2], texts[3])]
    assert set(rows) == set(table.rows)
    for row, pairs in rows.items():
        for (mean, difference), column in zip(pairs, shown, strict=True):
            ours = column.entries[row].ours
            assert mean == ours[0].removesuffix("†"), row
            assert difference == ("" if row in bases else ours[1]), row


def test_its_ablations_are_those_of_the_tables():
    study = load([ROOT / "results/reference"], "ablations-small")
    (top1,) = columns(build(study, baseline="Kaiming uniform"))
    on_target = [
        column for column in columns(build(study, "ablations-small_initialization")) if "target" in column.label
    ]
    lines = numbers("## Which parts of impulse matter?", STUDIES)
    assert {label.partition(" (default")[0] for label, *_ in lines} == set(study.rows)
    for label, mean, difference, shares in lines:
        row = label.partition(" (default")[0]
        ours = top1.entries[row].ours
        assert mean == ours[0].removesuffix("†"), row
        assert difference == ("" if row == "Kaiming uniform" else ours[1]), row
        found = [column.entries[row].ours[0].partition(" ±")[0] for column in on_target]
        assert shares == ("" if found[0] == "–" else ", ".join(found)), row


def test_its_pseudo_inputs_are_those_of_the_tables():
    study = load([ROOT / "results/reference"], "table6-small")
    shown = columns(build(study, baseline="Kaiming uniform"))[:2]
    on_target = [column for column in columns(build(study, "table6-small_initialization")) if "target" in column.label][
        :2
    ]
    lines = numbers("## Which input should impulse be solved on?", STUDIES)
    assert {row for row, *_ in lines} == set(study.rows)
    for row, *texts, shares in lines:
        for mean, difference, column in zip(texts[::2], texts[1::2], shown, strict=True):
            ours = column.entries[row].ours
            assert mean == ours[0].removesuffix("†"), row
            assert difference == ("" if row == "Kaiming uniform" else ours[1]), row
        found = [column.entries[row].ours[0].partition(" ±")[0] for column in on_target]
        assert shares == ("" if found[0] == "–" else ", ".join(found)), row


def test_its_filters_are_those_of_the_tables():
    study = load([ROOT / "results/reference"], "table4-small")
    by_label = {column.label: column for column in columns(build(study, baseline="Kaiming uniform"))}
    sizes = [(128, 3), (128, 5), (128, 8), (64, 5)]
    shown = [by_label[f"cifar10[5000] (width {width}, kernel_size {side})"] for width, side in sizes]
    lines = numbers("## Must spatial filters be trained?", STUDIES)
    assert {row for row, *_ in lines} == set(study.rows) - {"Kaiming uniform", "Imp.-3", "Imp.-5"} | {
        "Trained (Kaiming uniform)"
    }
    for label, *texts in lines:
        row = "Kaiming uniform" if label.startswith("Trained (") else label
        for text, column in zip(texts, shown, strict=True):
            mean, difference, *_ = [*column.entries[row].ours, ""]
            difference = "" if row == "Kaiming uniform" else f"<br>{difference}"
            assert text == mean.removesuffix("†") + difference, row
    for row in ("Imp.-3", "Imp.-5"):
        for heads in (4, 8):
            assert by_label[f"cifar10[5000] (width 48, heads {heads})"].entries[row].ours[1] in re.sub(
                r"\s+", " ", STUDIES
            )


def test_its_switches_are_those_of_the_tables():
    study = load([ROOT / "results/reference"], "convit-ablation-small")
    (top1,) = columns(build(study, baseline="a ConViT"))
    masked = {column.label: column for column in columns(build(study, "convit-ablation-small_masked"))}
    lines = numbers("## Which parts of ConViT matter?", STUDIES)
    assert {row for row, *_ in lines} == set(study.rows)
    for row, mean, difference, *without in lines:
        ours = top1.entries[row].ours
        assert mean == ours[0], row
        assert difference == ("" if row == "a ConViT" else ours[1]), row
        found = [masked[label].entries.get(row) for label in ("whole", "no content, 100%", "no position, 100%")]
        assert without == [entry.ours[0] if entry else "" for entry in found], row


def test_its_sample_efficiency_is_that_of_the_tables():
    study = load([ROOT / "results/reference"], "convit-efficiency-small")
    shown = columns(build(study, baseline="DeiT"))[:4]
    lines = numbers("## Which initialisation needs the fewest images?", STUDIES)
    assert {row for row, *_ in lines} == set(study.rows)
    for row, *texts in lines:
        for text, column in zip(texts, shown, strict=True):
            mean, *difference = column.entries[row].ours
            assert text == "<br>".join([mean, *difference]), row
    gaps = columns(build(study, "convit-efficiency-small_gap", baseline="DeiT"))
    for row, name in (("Mimetic", "mimetic"), ("Imp.-3", "impulse"), ("ConViT", "ConViT")):
        (column,) = [column for column in gaps if column.label.startswith(f"{row}: gap")]
        means = [column.entries[place].ours[0].partition(" ±")[0] for place in list(column.entries)[:4]]
        rounded = ", ".join(f"{float(mean.replace('−', '-')):.0f}".replace("-", "−") for mean in means)
        assert f"{rounded} ({name})" in re.sub(r"\s+", " ", STUDIES)


def test_its_long_range_is_that_of_the_records():
    study = load([ROOT / "results/reference"], "long-range-small")
    (last,) = columns(build(study, baseline="Trunc normal"))
    lines = numbers("## Does favouring neighbours cost global context?", STUDIES)
    assert {row for row, *_ in lines} == set(study.rows)
    for row, final, third in lines:
        mean = last.entries[row].ours[0]
        assert final == (f"**{mean}**" if last.entries[row].bold else mean)
        runs = [record for record in study.contents.done.values() if record.row == row]
        early = [record.history[2].test_top1 for record in runs]
        assert third == f"{mean_of(early):.2f} ± {stdev(early):.2f}"


def numbers(heading: str, text: str = README) -> list[list[str]]:
    """The cells of the lines with numbers in the first table after a heading."""
    table = re.search(r"(?:^\|.*\n)+", text[text.index(heading) :], flags=re.MULTILINE)
    assert table
    lines = [line for line in table[0].splitlines() if " ± " in line]
    return [[text.strip() for text in line.strip("|").split("|")] for line in lines]


def options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def of_program(code: str) -> tuple[str, set[str]]:
    """The program that inline code calls, which is "" where it is options alone, and the options it is given."""
    _, module, after = code.partition("-m ") if code.startswith(("python ", "torchrun ")) else ("", "", code)
    words = after.replace("runners.cli", "vitinit").split()
    if not module and words[:1] != ["vitinit"]:
        return "", options(code) if code.startswith("--") else set()
    length = {"vitinit": 3 if words[1:2] == ["data"] else 2}.get(words[0], 1)
    return " ".join(["python -m"] * (words[0] != "vitinit") + words[:length]), options(after)


def test_options_named_in_the_readmes_exist():
    prose = [re.sub(r"```.*?```", "", text, flags=re.DOTALL) for text in (README, *GUIDES.values())]
    named = [of_program(code) for text in prose for code in re.findall(r"`([^`]+)`", text)]
    named = [(program, given) for program, given in named if given]
    assert len({program for program, _ in named}) > 5
    alone = {"vitinit run", "vitinit rank", "python -m analysis.tables", "python -m analysis.curves"}
    programs = sorted(alone | {program for program, _ in named} - {""})
    known = {program: options(run(f"{program} --help", ROOT).stdout) for program in programs}
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
    for name in ("analysis", "benchmark", "initializers", "runners", "slurm", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
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


def test_the_grid_of_the_readme_runs_and_the_examples_are_found(checkout):
    assert len(README.splitlines()) <= 180, "ten minutes"
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


def test_every_other_grid_of_the_texts_is_planned(checkout):
    grids = [grid for text in GUIDES.values() for grid in blocks("yaml", text)]
    assert grids
    for number, grid in enumerate(grids):
        (checkout / f"text{number}.yaml").write_text(grid)
        done = run(f"vitinit plan text{number}.yaml", checkout)
        assert done.returncode == 0, done.stdout + done.stderr


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


@pytest.mark.parametrize(
    ("tests", "of"),
    [
        ("initializers/test_contract.py", "identity_value"),
        ("benchmark/test_dataset_contract.py", "stripes"),
        ("benchmark/test_model_contract.py", "vit_qk_norm"),
        ("analysis/test_table_contract.py", "_seconds"),
    ],
)
def test_the_contract_tests_run_over_the_examples_with_no_edit(checkout, tests, of):
    done = run(f"python -m pytest tests/{tests} -k {of} -p no:xdist", checkout)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout).group(1)) >= 4, done.stdout
