"""Impulse initialisation against paper-facts 1.6 and 2.5: targets, offsets, and what the model gets.

Expected values are computed here, in numpy float64, from the published formulas.
"""

from __future__ import annotations

from small_models import (
    VIT,
    model,
    refused,
)

from vitinit.initializers import registry


def test_what_does_not_fit_is_refused_by_the_parameter_that_needs_it_alone() -> None:
    small, narrow, bare = model(VIT, patch_size=16), model(VIT, width=24, heads=12), model()  # the first of 2 x 2
    bare.pos_embed = None
    refused(small, r"kernel_size 3 .* 2x2", "impulse")
    refused(narrow, r"rotation.* 4 features", "impulse")
    refused(bare, "position embedding", "impulse")
    registry.build("impulse", {"kernel_size": 1}).check(small)
    registry.build("impulse", {"solver": "svd"}).check(narrow)
    registry.build("impulse", {"kernel_size": 3}).check(model(VIT, image_size=12))
