"""The files of published numbers: what is wrong in one is one line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from analysis import published
from analysis.published import FOLDER, publication
from initializers.errors import VitinitError


def edit(path: tuple[Any, ...], new: Any):
    def change(content: dict[str, Any]) -> None:
        *outer, last = path
        for key in outer:
            content = content[key]
        content[last] = new

    return change


def twice(content: dict[str, Any]) -> None:
    cells = content["tables"]["Table 2"]["cells"]
    cells.append(cells[0])


CELL = ("tables", "Table 2", "cells", 0)


DAMAGES = [
    (edit((*CELL, "value"), 170.0), "less than or equal to 100"),
    (twice, "two numbers for"),
    (edit((*CELL, "row"), "Kaiming"), "not among the rows and columns"),
    (edit((*CELL, "setting"), {"dataset": "food101", "train_fraction": 0.5}), "whose size is known"),
    (edit((*CELL, "sdt"), 1), "is not a field here"),
    (edit(("paper",), "2404.01140"), "holds paper 2404.01140"),
    (None, "Invalid JSON"),
]


def test_a_bad_file_is_one_line(tmp_path):
    for damage, says in DAMAGES:
        text = (FOLDER / "2404.01139.json").read_text()
        content = json.loads(text)
        if damage:
            damage(content)
        (tmp_path / "2404.01139.json").write_text(json.dumps(content) if damage else text[:-100])
        with pytest.raises(VitinitError, match=says) as error:
            published.publication("2404.01139", tmp_path)
        assert len(str(error.value).splitlines()) == 1
        assert len(str(error.value)) <= 300


def test_an_unknown_paper_is_named():
    with pytest.raises(VitinitError, match=r"did you mean '2404\.01139'"):
        publication("2404.01138")


def test_a_paper_is_cited_by_where_it_can_be_found():
    assert publication("2404.01139").cited == "Zheng, Li, Lucey, arXiv 2404.01139"
    assert publication("2103.10697").cited == "d'Ascoli et al., arXiv 2103.10697"
    assert publication("openreview-cKNOCYPo2W").cited == "Saratchandran, Lucey, openreview-cKNOCYPo2W"
