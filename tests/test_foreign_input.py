"""Foreign input is data: nothing in the packages runs what it reads."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]

PACKAGES = ("analysis", "benchmark", "initializers", "runners", "slurm")
RUNS_WHAT_IT_READS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "pickle.load",
    "pickle.loads",
    "marshal.loads",
    "shelve.open",
    "joblib.load",
    "pandas.read_pickle",
    "pd.read_pickle",
    "yaml.load",
    "yaml.full_load",
    "yaml.unsafe_load",
    "os.system",
    "os.popen",
}
MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle"}


def code_that_runs_data(source: str) -> list[str]:
    """Calls and imports through which the content of a file could be run as code."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            name = (node.module or "").partition(".")[0]
            names = [f"{name}.{alias.name}" for alias in node.names]
            found += names if name in MODULES else [n for n in names if n in {*RUNS_WHAT_IT_READS, "torch.load"}]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            options = {option.arg: ast.unparse(option.value) for option in node.keywords}
            if name in RUNS_WHAT_IT_READS:
                found.append(name)
            if name.endswith("torch.load") and options.get("weights_only") != "True":
                found.append(f"{name} without weights_only=True")
            found += [f"{name}({key}=True)" for key in ("shell", "allow_pickle") if options.get(key) == "True"]
    return found


def test_nothing_in_the_packages_runs_what_it_reads() -> None:
    """Torchvision unpickles its CIFAR files, after their md5 sums are checked. A job unpickles what submitted it."""
    files = [ROOT / "vitinit/__init__.py", *(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))]
    assert len(files) > 100
    found = {str(path): calls for path in files if (calls := code_that_runs_data(path.read_text(encoding="utf-8")))}
    assert found == {
        str(ROOT / "slurm/submit.py"): ["pickle"],
        str(ROOT / "slurm/task.py"): ["pickle", "pickle.loads", "pickle.loads"],
        str(ROOT / "slurm/profiles.py"): ["yaml.load"],
    }
    assert "yaml.BaseLoader)" in (ROOT / "slurm/profiles.py").read_text(), "it makes texts, lists and dicts only"


def test_the_check_above_finds_what_it_looks_for_and_nothing_else() -> None:
    for source in (
        "import pickle",
        "from pickle import load",
        "import torch\ntorch.load(path)",
        "torch.load(path, weights_only=False)",
        "from torch import load",
        "yaml.load(text, Loader=yaml.SafeLoader)",
        "eval('1')",
        "exec(text)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(text, shell=True)",
        "os.system(text)",
    ):
        assert code_that_runs_data(source), source
    harmless = (
        "model.eval()\ntorch.load(path, weights_only=True)\nyaml.safe_load(text)\nre.compile(text)\nnp.load(path)"
    )
    assert code_that_runs_data(harmless) == []
