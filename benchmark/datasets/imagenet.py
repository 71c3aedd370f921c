"""ImageNet-1K (ILSVRC2012): accuracy is measured on its validation images, whose labels are public."""

from __future__ import annotations

from pathlib import Path

from vitinit.benchmark.datasets.packed import Packed


class ImageNet(Packed):
    """Its authors give it to who asks, as two archives."""

    def hint(self, source: Path) -> str:
        """Return the command that unpacks the archives, where they are there."""
        if not any(source.glob("ILSVRC2012_img_*.tar")):
            return ""
        return (
            "; unpack the archives first, torchvision does it: torchvision.datasets.ImageNet(DIR, 'train') and "
            "(DIR, 'val')"
        )


IMAGENET = ImageNet(
    name="imagenet",
    title="ImageNet-1K",
    images=(1_281_167, 50_000),
    classes=1000,
    statistics=((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    origin="has to be asked for at image-net.org; then run 'vitinit data prepare imagenet --from DIR'",
)
