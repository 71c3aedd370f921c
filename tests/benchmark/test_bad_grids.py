"""Grids that nobody could carry out: refused in one line that says what is allowed, before anything is built."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.fields import is_folder_name
from vitinit.benchmark.grids import grid
from vitinit.benchmark.models import registry as families
from vitinit.benchmark.models.vit import ViT
from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError

SOUND: dict[str, Any] = {
    "title": "One run",
    "rows": {"Kaiming uniform": {"base": "kaiming_uniform"}},
    "blocks": [
        {
            "datasets": ["digits"],
            "model": {"preset": "vit_micro", "image_size": 8, "patch_size": 1},
            "recipe": {"name": "small", "epochs": 2},
            "seeds": [0],
        }
    ],
}


def refused(folder: Path, content: bytes | dict[str, Any]) -> str:
    """The one line about a grid."""
    path = folder / "bad.yaml"
    data = content if isinstance(content, bytes) else yaml.safe_dump(content, allow_unicode=True).encode()
    path.write_bytes(data)
    with pytest.raises(VitinitError) as info:
        grid.load(str(path))
    message = str(info.value)
    assert message.isprintable()
    assert len(message) < 1_000
    return message


def with_block(**changes: Any) -> dict[str, Any]:
    content = copy.deepcopy(SOUND)
    for name, value in changes.items():
        block = content["blocks"][0]
        block[name] = {**block[name], **value} if isinstance(value, dict) else value
    return content


@pytest.mark.parametrize("group", ["vitinit.initializers", "vitinit.datasets", "vitinit.models"])
def test_a_file_that_cannot_be_used_is_blamed_on_no_row(tmp_path: Path, monkeypatch, group: str) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nbroken = broken_module:NAME\n")
    (tmp_path / "broken_module.py").write_text("1 / 0")
    for each in (registry, datasets, families):
        monkeypatch.setattr(each.REGISTRY, "searched", False)
    monkeypatch.syspath_prepend(tmp_path)
    message = refused(tmp_path, with_block(model={"width": 36 + 12 * len(group)}))  # not asked before
    assert message.startswith("entry point 'broken' (broken_module:NAME) cannot be loaded: ZeroDivisionError: ")


def test_a_name_that_a_record_would_refuse_is_none_of_a_folder() -> None:
    """Two engines read the pattern, `re` and pydantic's own: a run would be trained and then not be recorded."""
    for name in ("r²", "½", "①", "a b", "..", "a/b"):
        assert not is_folder_name(name), name
    assert is_folder_name("größe-1.2_x")


# --- what the limits leave possible ---


def test_large_deep_and_long_models_are_possible() -> None:
    large = ViT(image_size=224, patch_size=14, width=6144, depth=48, heads=48)
    assert large.size == pytest.approx(48 * 12 * 6144**2, rel=0.01), "of the size of ViT-22B"
    ViT(image_size=32, patch_size=4, width=48, depth=5_000, heads=4)
    ViT(image_size=1024, patch_size=4, width=768, depth=12, heads=12)
