"""timm's MLP-Mixer and ResMLP, which have no attention."""

from initializers.adapter import Adapter

MIXER = Adapter(
    name="timm MLP-Mixer",
    models=("timm.models.mlp_mixer.MlpMixer",),
    parameters={"*.alpha": 1.0, "*.beta": 0.0, "*.ls1": "layer_scale", "*.ls2": "layer_scale"},
)
