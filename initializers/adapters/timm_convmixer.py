"""timm's ConvMixer: depthwise convolutions mix the tokens."""

from vitinit.initializers.adapter import Adapter

CONVMIXER = Adapter(name="timm ConvMixer", models=("timm.models.convmixer.ConvMixer",), filters=True)
