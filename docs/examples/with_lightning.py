"""Lightning on digits: initialise in the constructor, before a strategy wraps the model."""

import lightning
import timm
import torch
from sklearn.datasets import load_digits

import vitinit


class Classifier(lightning.LightningModule):
    """A ViT that starts with impulses."""

    def __init__(self) -> None:
        super().__init__()
        small = {"img_size": 8, "patch_size": 2, "in_chans": 1, "embed_dim": 48, "depth": 2, "num_heads": 4}
        self.vit = timm.create_model("vit_tiny_patch16_224", num_classes=10, **small)
        learned = {"solver": "svd", "position_scale": 18.0}  # what positions that start as noise need
        print(vitinit.initialize(self.vit, "impulse", base="kaiming_uniform", seed=0, **learned))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """Loss of a batch."""
        return torch.nn.functional.cross_entropy(self.vit(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


images, labels = load_digits(return_X_y=True)
x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16 - 0.3
data = torch.utils.data.TensorDataset(x, torch.tensor(labels))
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(max_steps=5, accelerator="cpu", **quiet)
trainer.fit(Classifier(), torch.utils.data.DataLoader(data, batch_size=64))
print(f"{trainer.global_step} steps")
