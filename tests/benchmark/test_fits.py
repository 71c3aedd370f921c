"""Initialisers on families: a plan and a run agree on whether each fits."""

import pytest
import torch

from vitinit.benchmark.grids.grid import misfit, resolve_initializer, resolve_model
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.spec import InitializerSpec
from vitinit.initializers import registry
from vitinit.initializers.apply import initialize_run
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Job
from vitinit.initializers.streams import stream

GIVEN = {"procedural": {"steps": 1, "strings": 2, "batch_size": 2}}


def images(_):
    """Few, whatever is asked for."""
    return torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("arch", ["convit", "convmixer", "vit"])
def test_what_is_said_to_fit_is_carried_out_and_what_is_not_is_refused(arch):
    spec = resolve_model({"preset": f"{arch}_micro", "image_size": 32, "patch_size": 4})
    model = build_model(spec, 10)
    for name in registry.names():
        verdict = misfit(spec, resolve_initializer({"name": name}), None)
        part = registry.build(name, GIVEN.get(name, {}))
        base, method = (part, None) if part.kind == "base" else (registry.build("trunc_normal", {}), part)
        if verdict:
            with pytest.raises(VitinitError) as refused:
                initialize_run(model, base, method, lambda named: stream(0, named))
            assert verdict == str(refused.value).replace(type(model).__name__, spec.label)
            assert misfit(spec, InitializerSpec(name="trunc_normal"), InitializerSpec(name=name)) == verdict
        else:  # without what a record measures, which takes the longest
            for each in filter(None, (base, method)):
                each.check(model)
                with torch.no_grad():
                    each.apply(model, stream(0, name), Job(training_images=images))
            assert model(images(4)).isfinite().all()
        model.requires_grad_()  # some methods freeze what they set
