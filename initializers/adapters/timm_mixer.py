"""timm's MLP-Mixer and ResMLP, which have no attention."""

from vitinit.initializers.adapter import Adapter

MIXER = Adapter(
    name="timm MLP-Mixer",
    models=("timm.models.mlp_mixer.MlpMixer",),
    grid=lambda model: model.stem.grid_size,
    token_mixing=("mlp_tokens", "linear_tokens"),
    parameters={"*.alpha": 1.0, "*.beta": 0.0, "*.ls1": "layer_scale", "*.ls2": "layer_scale"},
)
