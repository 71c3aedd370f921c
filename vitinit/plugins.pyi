from vitinit.analysis.curves.registry import CURVES as CURVES
from vitinit.analysis.figures.registry import FIGURES as FIGURES
from vitinit.analysis.tables.registry import TABLES as TABLES
from vitinit.analysis.tables.table import Asked as Asked
from vitinit.analysis.tables.table import Table as Table
from vitinit.analysis.tables.table import TableCell as TableCell
from vitinit.analysis.tables.table import compose as compose
from vitinit.benchmark.augmentations.registry import Augmentation as Augmentation
from vitinit.benchmark.augmentations.registry import register as register_augmentation  # noqa: F401
from vitinit.benchmark.datasets.registry import Arrays as Arrays
from vitinit.benchmark.datasets.registry import Dataset as Dataset
from vitinit.benchmark.datasets.registry import InMemory as InMemory
from vitinit.benchmark.datasets.registry import Opened as Opened
from vitinit.benchmark.image_files.arrays import Split as Split
from vitinit.benchmark.metrics.registry import Metric as Metric
from vitinit.benchmark.models.registry import ModelSpec as ModelSpec
from vitinit.benchmark.models.vit import ViT as ViT
from vitinit.benchmark.optimizers.registry import register as register_optimizer  # noqa: F401
from vitinit.initializers.attention import AttentionLayer as AttentionLayer
from vitinit.initializers.attention import attention_layers as attention_layers
from vitinit.initializers.registry import Aim as Aim
from vitinit.initializers.registry import Initializer as Initializer
from vitinit.initializers.registry import Job as Job
from vitinit.initializers.registry import register as register
from vitinit.initializers.whole_model import Place as Place
from vitinit.initializers.whole_model import WholeModel as WholeModel
from vitinit.runners.probes.quantities import Seen as Seen
from vitinit.runners.probes.quantities import probe as probe
from vitinit.runners.tracking.tracker import Tracker as Tracker

__all__: list[str]
