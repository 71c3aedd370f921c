from vitinit.initializers.adapter import Adapter as Adapter
from vitinit.initializers.adapter import Attention as Attention
from vitinit.initializers.adapter import Normal as Normal
from vitinit.initializers.adapter import Part as Part
from vitinit.initializers.adapter import fused as fused
from vitinit.initializers.adapter import linear as linear
from vitinit.initializers.adapters import register as register
from vitinit.initializers.adapters import unregister as unregister

__all__: list[str]
