"""Proposition 1 of arXiv 2404.01139 by numbers: enough channels are k f^2 of them, and one filter is never enough."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError
from vitinit.runners.cli import proposition as cli_proposition
from vitinit.runners.loaders import choice
from vitinit.runners.measuring import proposition

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def digits(tmp_path) -> Data:
    return load(DatasetSpec(name="digits"), 8, tmp_path)


def measured(digits: Data, **changes) -> proposition.PropositionReport:
    settings = {"patch_size": 2, "kernel_sizes": [2, 3], "images": 40, "seed": 0, "tolerance": 1e-6, **changes}
    return proposition.measure(digits, "digits", **settings)


def test_the_error_vanishes_from_k_f_squared_channels_on(digits):
    report = measured(digits)
    assert report.rank == 5, "grey patches of 2 x 2 pixels, and the bias"
    for point in report.points:
        assert point.width == round(point.share * 5 * point.kernel_size**2)
        if point.filter == "random":
            assert (point.error < 1e-9) == (point.share >= 1), point
            assert point.error < 1e-9 or point.error > 0.05, point
        if point.filter == "impulse":  # each of the f^2 places needs k channels, and they fall at random
            assert point.error > 0.05 or point.share >= 1, point
            assert point.error < 1e-9 or point.share < 3, point
        if point.filter == "box":  # one and the same filter in every channel
            assert point.error > 0.5, point


def test_the_answer_is_the_least_share_from_which_on_nothing_is_missing(digits):
    report = measured(digits)
    said = proposition.answer(report)
    assert said.startswith(
        "Enough (relative error below 1e-06): random filters from D = k f² on, impulse filters from "
    )
    assert said.endswith(", box filters at none of the D tried; tried up to D = 3 k f².")
    for kind, errors, share in (
        ("a", {0.5: 1e-1, 1.0: 1e-7, 2.0: 1e-9}, 1.0),
        ("b", {0.5: 1e-9, 1.0: 1e-6, 2.0: 1e-9}, 2.0),  # enough at the least, by chance, and not on from there
        ("c", {0.5: 1e-9, 1.0: 1e-9, 2.0: 1e-9}, 0.5),
        ("d", {0.5: 1e-9, 1.0: 1e-9, 2.0: 1e-5}, None),
    ):
        points = [
            proposition.Point(filter=kind, kernel_size=side, width=1, share=at, error=0.0 if side == 2 else error)
            for side in (2, 3)
            for at, error in errors.items()
        ]
        assert proposition.enough_from(points) == share, kind
        words = {None: "at none of the D tried", 1.0: "from D = k f² on"}.get(share, f"from D = {share} k f² on")
        told = proposition.answer(report.model_copy(update={"points": points}))
        assert f": {kind} filters {words.replace('.0 k', ' k')}; tried" in told


def test_the_error_is_that_of_a_projection_in_numpy():
    draws = torch.Generator().manual_seed(0)
    x_BDhw = torch.randn(2, 4, 5, 5, generator=draws, dtype=torch.float64)
    filters_DPQ = torch.randn(4, 3, 3, generator=draws, dtype=torch.float64)
    bank = torch.randn(8, 4, 3, 3, generator=proposition.stream(7, "target"), dtype=torch.float64).numpy()
    padded = np.pad(x_BDhw.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    target = np.einsum("bdhwpq,odpq->bhwo", windows, bank).reshape(50, 8)
    spatial = np.einsum("bdhwpq,dpq->bhwd", windows, filters_DPQ.numpy()).reshape(50, 4)
    basis, _ = np.linalg.qr(spatial)
    missing = target - basis @ (basis.T @ target)
    expected = np.linalg.norm(missing) / np.linalg.norm(target)
    assert proposition.relative_error(x_BDhw, filters_DPQ, 7) == pytest.approx(expected, rel=1e-10)


@pytest.mark.long
def test_it_is_a_function_of_its_seed_and_leaves_the_global_generator(digits):
    state = torch.get_rng_state()
    reports = [measured(digits, kernel_sizes=[2], seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), state)
    assert reports[0].points == reports[1].points
    assert reports[0].points != reports[2].points


def test_too_few_images_are_refused(digits):
    with pytest.raises(VitinitError, match="16 patches cannot tell 135 channels apart; take more images"):
        measured(digits, images=1, kernel_sizes=[3])


def test_a_tolerance_of_zero_counts_every_singular_value_and_one_of_1_none(digits):
    report = measured(digits, kernel_sizes=[2], tolerance=0)
    assert report.tolerance == 0
    assert report.rank >= 5
    with pytest.raises(VitinitError, match="no singular value is above 1 times the largest"):
        measured(digits, tolerance=1)


def test_what_cannot_be_measured_or_written_is_said_in_one_line(vitinit, undisturbed, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(choice, "main_memory", lambda: 10**6)
    for option, value, said in (
        ("--out", tmp_path / "file", "cannot write to the results folder"),
        ("--image-size", 32, "digits at 32 px does not fit into memory"),  # 1,797 images of 3 KB
        ("--patch-size", 3, "model: image_size 8 is not divisible by patch_size 3"),
    ):
        code, out, error = vitinit("proposition", option, value)
        assert (code, out, error.count("\n")) == (2, "", 1)
        assert said in error


def test_what_is_printed_is_written_with_where_it_comes_from(tmp_path, capsys):
    cli_proposition.proposition(kernel_size=[2], images=8, data_dir=tmp_path, out=tmp_path)
    (path,) = tmp_path.glob("*.json")
    report = proposition.PropositionReport.model_validate_json(path.read_bytes())
    assert report.environment["packages"]["torch"]
    assert "commit" in report.environment
    printed = capsys.readouterr().out
    assert " ".join(printed.split()).startswith(proposition.answer(report))
    for letter in ("f: side of a filter", "D: channels", "k: rank of the patch embeddings"):
        assert letter in " ".join(printed.split())
    assert "k = 5" in printed
    assert f"{report.points[0].error:.1e}" in printed
