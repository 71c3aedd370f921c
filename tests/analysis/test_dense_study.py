"""Studies of runs on masks: mean IoU where top-1 is elsewhere, and never one average of both."""

import pytest

from tests.analysis.synthetic_records import done, write
from tests.synthetic_masks import dense
from vitinit.analysis.figures.accuracy import accuracy
from vitinit.analysis.frame import load
from vitinit.analysis.tables.registry import build
from vitinit.initializers.errors import VitinitError

MIOU = {"Kaiming uniform": (40.0, 41.0, 42.0), "Mimetic": (45.0, 47.0, 48.0)}


def of_masks(root):
    runs = (dense(row, (10.0, last), seed=seed) for row, its in MIOU.items() for seed, last in enumerate(its))
    return write(root, *runs)


def test_table_and_page_say_mean_iou_wherever_they_said_top1(tmp_path):
    study = load([of_masks(tmp_path)])
    assert (study.metrics, study.measured) == ({"shapes": "mean IoU"}, "mean IoU")
    table = build(study)
    assert table.caption.startswith("Mean IoU (%) on shapes after the last epoch, mean and standard deviation over 3")
    assert not any("top-1" in note for note in table.notes)
    (difference,) = table.numbers["difference"].dropna()
    assert difference == pytest.approx((5 + 6 + 6) / 3)
    grid = accuracy(study)["accuracy"]
    assert next(iter(grid.axes.values())).get_ylabel() == "test mean IoU (%)"


def test_two_metrics_in_one_column_are_refused(tmp_path):
    write(of_masks(tmp_path), done("Mimetic", (20.0, 60.0), dataset="shapes", seed=7, study="masks"))
    with pytest.raises(VitinitError, match="study 'masks': runs on shapes are measured by .*mean IoU") as caught:
        build(load([tmp_path]))
    assert "\n" not in str(caught.value)
