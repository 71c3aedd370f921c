"""Methods that use data get training images by the seed alone, whoever carries the run out."""

import torch

from benchmark.models.build import build_model
from initializers import registry
from initializers.attention import attention_layers
from initializers.initialize import fidelity, pseudo_input_attention
from initializers.registry import Resources
from runners.basics.streams import stream
from runners.loaders import make_loader, open_data
from tests.runners.one_run.test_solutions import carried_out, tiny


def test_a_run_is_solved_on_the_images_of_its_stream(tmp_path):
    params = {"solver": "svd", "pseudo_input": "images", "per_layer": True}
    record, again, other = (carried_out(tmp_path / str(i), seed, params=params) for i, seed in enumerate((3, 3, 4)))
    assert record.without_times() == again.without_times()
    assert record.init.norms != other.init.norms

    spec = tiny(3, **params)
    data = open_data(spec.dataset, 8, tmp_path, "auto", "cpu")
    loader = make_loader(data, spec.recipe, 3, torch.device("cpu"))
    model = build_model(spec.model, 10)

    def images(count):
        return loader.plain(torch.randint(100, (count,), generator=stream(3, "init/images")))

    registry.build("kaiming_uniform", {}).apply(model, stream(3, "init/base"), lambda *_: None)
    method = registry.build("impulse", spec.method.params)
    aim = method.apply_with(model, stream(3, "init/method"), lambda *_: None, Resources(training_images=images))
    found = fidelity(pseudo_input_attention(attention_layers(model)[0], aim.pseudo_ND)[None], aim.targets_LHNN[0])
    assert record.init.pseudo_input == found
