"""The identity of a run never changes silently: it decides what counts as recorded already."""

import json
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError
from stored_records import REFERENCE

from vitinit.benchmark.identity import TABLE
from vitinit.benchmark.records.record import from_bytes, to_bytes
from vitinit.benchmark.spec import DatasetSpec, InitializerSpec, Recipe, RunSpec
from vitinit.initializers.errors import VitinitError


def owners(run):
    """Return the fields of a run, as JSON, by what has them in the table."""
    initializers = [one for one in (run["base"], run["method"]) if one]
    return {"dataset": run["dataset"], "recipe": run["recipe"], f"model.{run['model']['arch']}": run["model"]} | {
        f"initializer.{one['name']}": one["params"] for one in initializers
    }


def test_a_record_of_before_a_field_came_or_after_it_went_has_its_id_and_is_unchanged_by_reading():
    for path in REFERENCE:
        record = from_bytes(path.read_bytes())
        assert from_bytes(to_bytes(record)) == record
        content = json.loads(path.read_bytes())["spec"]
        old, whole = deepcopy(content), deepcopy(content)
        for owner, fields in owners(old).items():
            for name in {**TABLE["came"].get(owner, {}), **TABLE["gone"].get(owner, {})}:
                fields.pop(name, None)
        for owner, fields in owners(whole).items():
            fields.update({**TABLE["came"].get(owner, {}), **TABLE["gone"].get(owner, {}), **fields})
        assert {RunSpec.model_validate(each).run_id for each in (content, old, whole)} == {record.run_id} == {path.stem}


def test_a_parameter_that_came_later_is_none_inside_a_placebo_either():
    of = {"name": "mimetic", "alpha_qk": 0.5}
    old, new, other = (
        reference_run(method={"name": "placebo", "params": {"keep": "norm", "of": of | later}})
        for later in ({}, {"parts": "both", "mlp_mean": 0.0}, {"parts": "qk"})
    )
    assert (old, old.run_id) == (new, new.run_id)
    assert other.run_id != old.run_id


KINDS = {"dataset": DatasetSpec, "base": InitializerSpec, "method": InitializerSpec, "recipe": Recipe}
FIELDS = yaml.safe_load(Path(__file__).with_name("field_values.yaml").read_text())


def reference_run(**parts):
    return RunSpec.model_validate(json.loads(REFERENCE[0].read_bytes())["spec"] | parts)


@pytest.mark.parametrize("part", KINDS)
def test_every_field_counts(part):
    """Each value of a field is another run."""
    content = json.loads(REFERENCE[0].read_bytes())["spec"][part]
    for field in KINDS[part].model_fields.keys() - {"home"}:  # where a path begins, which is no identity
        base = {**content, **FIELDS["together"].get(f"{part}.{field}", {})}
        runs = [reference_run(**{part: base})]
        for value in FIELDS["values"]:
            with suppress(ValidationError, VitinitError):
                runs.append(reference_run(**{part: {**base, field: value}}))
        values = {repr(getattr(getattr(run, part), field)) for run in runs}
        assert len(values) > 1, f"{field}: give it another value in field_values.yaml"
        assert len({run.run_id for run in runs}) == len(values), field
