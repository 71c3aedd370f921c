"""The project as a whole: its locks, citation and workflows."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def stated(key: str) -> str:
    """A string of pyproject.toml; Python 3.10 cannot read it otherwise."""
    return re.search(rf'^{key} = "(.*)"$', PYPROJECT, re.MULTILINE)[1]


def locked(name: str) -> dict[str, str]:
    """Versions by package."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "://" not in text, "no host of a registry"
    return dict(re.findall(r"^([a-z0-9_.-]+)==(\S+)", text, re.MULTILINE))


def test_the_lock_of_cuda_12_differs_from_the_other_in_torch_alone():
    lock, older = locked("requirements.lock"), locked("requirements-cuda12.lock")
    apart = {name for name, version in older.items() if lock.get(name) != version}
    assert {name for name in apart if not re.match(r"torch|triton|cuda-|nvidia-", name)} == set()
    assert "nvidia-cuda-runtime-cu12" in older


def test_timm_is_the_one_that_was_tried():
    """Augmentation and ConViT reach into it, so each of its versions may compute something else."""
    (floor,) = re.findall(r'"timm>=(.*)"', PYPROJECT)
    assert floor == locked("requirements.lock")["timm"]


def test_the_citation_names_this_version_and_the_papers_of_the_readme():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (str(citation["version"]), citation["license"]) == (stated("version"), stated("license"))
    papers = [entry["identifiers"][0]["value"].removeprefix("arXiv:") for entry in citation["references"]]
    last = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[-1]
    assert papers == re.findall(r"\d{4}\.\d{5}", last)


@pytest.mark.parametrize("package", ["analysis", "benchmark", "initializers", "runners", "slurm", "vitinit"])
def test_no_file_that_is_loaded_can_run_code(package):
    """The defaults of torch.load and np.load are safe; ruff watches pickle and the like."""
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / package).glob("**/*.py"))
    assert "import" in code
    assert not re.search("weights_only=False|allow_pickle=True", code)
