"""The identity of a run never changes silently: it decides what counts as recorded already."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress

import pytest
from pydantic import ValidationError
from stored_records import REFERENCE

from vitinit.benchmark import spec
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.records.record import from_bytes, to_bytes
from vitinit.benchmark.spec import DatasetSpec, InitializerSpec, Recipe, RunSpec
from vitinit.initializers.errors import VitinitError

LATER = {**spec.LATER, "model": dict(ViT.later)}
"""Later fields of all parts of a spec of a ViT."""


def test_a_record_of_before_the_later_fields_has_its_id_and_is_unchanged_by_reading() -> None:
    for path in REFERENCE:
        record = from_bytes(path.read_bytes())
        assert from_bytes(to_bytes(record)) == record
        content = json.loads(path.read_bytes())["spec"]
        old, whole = dict(content), dict(content)
        for part, later in {**spec.LATER, "model": record.spec.model.later}.items():
            old[part] = {name: value for name, value in content[part].items() if name not in later}
            whole[part] = content[part] | later
        assert {RunSpec.model_validate(each).run_id for each in (content, old, whole)} == {record.run_id} == {path.stem}


KINDS = {"dataset": DatasetSpec, "base": InitializerSpec, "method": InitializerSpec, "recipe": Recipe}
VALUES: list[object] = [
    *(None, 0.0, 1e-6, 0.1, 0.5, 2, 8, 999, "other", "cifar10", "imagenet", "seed", "val", "epoch", "blocks", "image"),
    *("bf16", "rand-m9", [0.08, 1.0], [0.75, 1.3], [0.9, 0.99], [{"name": "augmix", "params": {}}], {"std": 0.03}),
    *({"name": "lion", "params": {}}, {"name": "linear"}),
]
"""Each field takes some of these; those of models are in test_model_contract.py."""
TOGETHER = {
    ("dataset", "path"): {"name": "folder", "path": "others"},
    ("dataset", "train_draw"): {"train_size": 999},
    ("dataset", "evaluate_on"): {"val_size": 10},
    ("recipe", "mix_images"): {"mixup": 0.8},
    ("recipe", "crop_ratio"): {"crop_scale": [0.5, 1.0]},
}
"""Other fields that a value needs."""


def reference_run(**parts: object) -> RunSpec:
    return RunSpec.model_validate(json.loads(REFERENCE[0].read_bytes())["spec"] | parts)


@pytest.mark.parametrize("part", KINDS)
def test_every_field_counts(part: str) -> None:
    """Each value of a field is another run."""
    content = json.loads(REFERENCE[0].read_bytes())["spec"][part]
    for field in KINDS[part].model_fields:
        base = {**content, **TOGETHER.get((part, field), {})}
        runs = [reference_run(**{part: base})]
        for value in VALUES:
            with suppress(ValidationError, VitinitError):
                runs.append(reference_run(**{part: {**base, field: value}}))
        values = {repr(getattr(getattr(run, part), field)) for run in runs}
        assert len(values) > 1, f"{field}: give it another value in VALUES"
        assert len({run.run_id for run in runs}) == len(values), field


def test_the_hashed_text_is_the_whole_spec_as_sorted_json() -> None:
    for value in (1, 1.0, True, -0.0, 1e-8, 1e22, 5e-324, 10**20, "ü\x1b\u2028", None, [1, 1.0, {"b": 0, "a": -0.0}]):
        run = reference_run(base={"name": "zero", "params": {"z": value, "a": {"c": value, "b": 1}}})
        whole = {"schema_version": 1, **run.model_dump(mode="json")}
        for part, later in LATER.items():
            for name in later:
                del whole[part][name]  # at the values that leave a run as it was before them
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
        assert (run.canonical(), run.run_id) == (text, hashlib.sha256(text.encode()).hexdigest()[:16])
