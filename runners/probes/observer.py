"""Probes and attention maps of a run, from its beginning on and after its epochs; checkpoints contain them."""

import copy
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timm.models.convit import ConVit
from torch import Tensor, nn

from vitinit.benchmark.files.atomic import write_with_folder
from vitinit.benchmark.models.layers.gated_attention import leaving_out
from vitinit.benchmark.records.record import Masked, Probe
from vitinit.benchmark.records.store import AttentionMaps, maps_to_bytes
from vitinit.initializers.attention import evaluated, token_grid
from vitinit.initializers.diagnostics import measured, rounded
from vitinit.initializers.errors import cause
from vitinit.initializers.streams import seeded_python, stream
from vitinit.initializers.transaction import detached
from vitinit.runners.loaders.base import Loader
from vitinit.runners.probes.quantities import RECEPTIVE_FIELD_IMAGES, Seen, blocks_of, patch_tokens, probes
from vitinit.runners.training.train import autocast

IMAGES = 32
"""Number of test images for probes: under 5 % of the time of an epoch of 1,400 images, the shortest there is."""
MAP_IMAGES = 64
"""Number of test images that attention maps are the mean over."""
GRAM_BATCH, GRAM_BATCHES = 64, 4
"""Images are compared within batches of so many: the number of numbers grows with the square of it."""


class Observer:
    """Probes of one run, and what it is to keep: attention maps, and Gram matrices of what its blocks put out.

    Args:
        loader: of the run.
        probing: whether to measure probes.
        maps_at: the epochs after which to take what is kept, 0 for the beginning; empty for none.
        report: told, in one line, what cannot be measured.
    """

    def __init__(self, loader: Loader, probing: bool, maps_at: tuple[int, ...], report: Callable[[str], None]) -> None:
        self.probing, self.maps_at, self.report = probing, maps_at, report
        self.probes: list[Probe] = []
        self.snapshots: dict[int, tuple[Tensor, Tensor]] = {}
        """By epoch: maps, L x H x N x N, and Gram matrices, L x batches x batch x batch."""
        self.missing: dict[str, list[str]] = {}
        """Names of probes that cannot measure this model, by the reason: each is told once."""
        self.targets_LHNN: Tensor | None = None
        if probing or maps_at:
            numbers = held_out_numbers(
                len(loader.data.held_out.labels), GRAM_BATCH * GRAM_BATCHES if maps_at else IMAGES
            )
            self.images_BCHW = loader.plain(numbers, "held_out")

    def see(self, model: nn.Module, epoch: int, evaluated: bool = True) -> Probe | None:
        """Measure what is to be measured after this epoch; return the probe that was taken.

        One is taken where the model is evaluated too.
        """
        probe = None
        if self.probing and evaluated:
            probe, missing = measure(model, self.images_BCHW[:IMAGES], self.targets_LHNN, epoch)
            self.probes += [probe] if probe else []
            for why, names in missing.items():
                if self.missing.setdefault(why, names) is names:
                    self.report(f"not measured: {', '.join(names)}: {why}")
        if epoch in self.maps_at:
            self.snapshots[epoch] = (
                torch.stack(measured(model, self.images_BCHW[:MAP_IMAGES], whole_rows=False).maps).half().cpu(),
                grams(model, self.images_BCHW),
            )
        return probe

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""
        return {
            "targets": self.targets_LHNN,
            "probes": [row.model_dump() for row in self.probes],
            "snapshots": self.snapshots,
        }

    def load_state_dict(self, state: dict[str, Any], epochs: list[int]) -> None:
        """Take up a run in the middle.

        Args:
            state: what `state_dict` returned.
            epochs: those before it that probes are taken after.
        """
        self.targets_LHNN, self.snapshots = state["targets"], state["snapshots"]
        self.probes = [Probe.model_validate(row) for row in state["probes"]]
        lost = sorted({*epochs} - {probe.epoch for probe in self.probes})
        if self.probing and not self.probes:
            self.probing = False
            self.report("probes are not recorded: the run began without them")
        elif self.probing and lost:
            self.report(f"probes after epoch {', '.join(map(str, lost))} are missing: the run was without them")
        if self.maps_at and not self.snapshots:
            self.maps_at = ()
            self.report("attention maps are not kept: the run began without them")

    def keep(self, weights: str, path: Path) -> str | None:
        """Write the attention maps of a run that has ended, where it was to keep any; return their sha256.

        Args:
            weights: fingerprint after the last step.
            path: of the file.
        """
        if not self.maps_at:
            return None
        maps, gram_matrices = zip(*(self.snapshots[epoch] for epoch in self.maps_at), strict=True)
        kept = AttentionMaps(
            self.maps_at, np.stack(maps), np.stack(gram_matrices), min(MAP_IMAGES, len(self.images_BCHW)), weights
        )
        return keep("attention maps", path, maps_to_bytes(kept), self.report)


def held_out_numbers(available: int, count: int) -> Tensor:
    """Return numbers of held-out images, the same in every run on them, from all over a split sorted by class."""
    return torch.randperm(available, generator=stream(0, "maps"))[:count]


def measure(
    model: nn.Module, images_BCHW: Tensor, targets_LHNN: Tensor | None, epoch: int
) -> tuple[Probe | None, dict[str, list[str]]]:
    """Measure the attention of a model, which is left as it was; no random number is drawn.

    Each probe of one's own works on copies, under a seed of its own.

    Args:
        model: with attention.
        images_BCHW: on its device.
        targets_LHNN: what its method aimed at, of the layers that have a target; None where it has none.
        epoch: that has ended.

    Returns:
        What was measured, if anything, and the names of the probes that could not measure, by the reason.
    """
    began = time.perf_counter()
    seen = Seen(model, images_BCHW, targets_LHNN)
    fields: dict[str, Any] = {
        "epoch": epoch,
        "images": len(images_BCHW),
        "receptive_field_images": min(RECEPTIVE_FIELD_IMAGES, len(images_BCHW)),
        "seconds": 0.0,
        "more": {},
    }
    probe, missing = None, dict[str, list[str]]()
    for name, measured_by in probes().items():
        ours = measured_by.__module__.startswith("vitinit.")
        try:
            if ours:
                value = measured_by(seen)
            else:
                with torch.random.fork_rng([images_BCHW.device] if images_BCHW.is_cuda else []), seeded_python(0):
                    torch.manual_seed(0)
                    value = measured_by(copy.deepcopy(seen, detached(model)))
            if value is not None:
                values = {name: rounded(value)}
                own = ours and name in Probe.model_fields
                probe = Probe.model_validate(fields | (values if own else {"more": fields["more"] | values}))
                fields = probe.model_dump()
        except Exception as error:  # of anyone's model: this one is left out, and no other
            missing.setdefault(f"{type(model).__name__}: {cause(error)}", []).append(name)
    return probe and probe.model_copy(update={"seconds": time.perf_counter() - began}), missing


@torch.no_grad()
def grams(model: nn.Module, images_BCHW: Tensor) -> Tensor:
    """Gram matrices of what each block puts out, layers x batches x batch x batch.

    An image's features are its patch tokens beside one another, minus their mean over the images of the batch. From
    these matrices `analysis.curves.cka` computes linear CKA between layers, epochs and runs.

    Args:
        model: with timm's blocks; evaluated, and left as it was.
        images_BCHW: on the model's device; what does not fill a batch of GRAM_BATCH is left out.
    """
    grid, batch = token_grid(model), min(GRAM_BATCH, len(images_BCHW))
    matrices = []

    def compare(block: nn.Module, inputs: object, output: Tensor) -> None:
        features_BF = patch_tokens(output, grid)[0].flatten(1).double()
        centred_BF = features_BF - features_BF.mean(0)
        matrices.append((centred_BF @ centred_BF.T).float().cpu())

    hooks = [block.register_forward_hook(compare) for block in blocks_of(model)]
    with evaluated(model, hooks):
        for some_BCHW in images_BCHW[: len(images_BCHW) // batch * batch].split(batch):
            model(some_BCHW)
    return torch.stack(matrices).unflatten(0, (-1, len(hooks))).transpose(0, 1)


def keep(what: str, path: Path, content: bytes, report: Callable[[str], None]) -> str | None:
    """Write what is to be kept beside a record and return its sha256; where it cannot be written, say so."""
    try:
        write_with_folder(path, content)
    except OSError as error:
        report(f"the {what} are not kept: cannot write {path}: {error.strerror or error}")
        return None
    return hashlib.sha256(content).hexdigest()


LEAST_IMAGES, LEAST_SHARE = 1000, 100
"""Held-out images measured on: a hundredth of the training images seen in the run, at least a thousand if there are."""


def masked(model: nn.Module, loader: Loader, micro_batch: int | None = None) -> list[Masked]:
    """Held-out accuracy with one term left out in the first 3, 5 and 10 tenths of the GPSA layers; nothing is trained.

    As arXiv 2103.10697, Table 6, which leaves them out in 3, 5 and 10 layers of 10; it does not say which. Halves are
    rounded to even, so of five layers these are 2, 2 and 5: twice the same, recorded once.

    Args:
        model: trained; one that is no ConViT has no result, and neither has one that predicts pixels.
        loader: of the run.
        micro_batch: images at most that go through the model at once.
    """
    if not isinstance(model, ConVit) or loader.dense:
        return []
    labels, trained = loader.data.held_out.labels, len(loader.data.train.labels)
    numbers = held_out_numbers(len(labels), max(LEAST_IMAGES, loader.recipe.epochs * trained // LEAST_SHARE))
    at_once = min(loader.evaluation_batch, micro_batch or loader.evaluation_batch)

    @torch.inference_mode()
    def top1() -> float:
        with evaluated(model), autocast(loader.recipe, loader.device):
            correct = sum(
                int((model(loader.plain(batch, "held_out")).argmax(-1).cpu() == labels[batch].cpu()).sum())
                for batch in numbers.split(at_once)
            )
        return 100 * correct / len(numbers)

    depth, whole, accuracies = model.local_up_to_layer, top1(), []
    for layers in sorted({max(1, round(share * depth)) for share in (0.3, 0.5, 1.0)}):
        for term in ("content", "position"):
            with leaving_out(model, term, layers):
                accuracies.append(Masked(term=term, layers=layers, images=len(numbers), top1=top1(), top1_whole=whole))
    return accuracies
