"""Lightning on digits: initialise in the constructor, before a strategy wraps the model.

Needs `pip install lightning timm scikit-learn`.
"""

import lightning
import timm
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import vitinit


class Classifier(lightning.LightningModule):
    """ViT that starts with mimetic initialisation."""

    def __init__(self) -> None:
        super().__init__()
        self.vit = timm.create_model(
            "vit_tiny_patch16_224",
            img_size=8,
            patch_size=2,
            in_chans=1,
            embed_dim=48,
            depth=2,
            num_heads=4,
            num_classes=10,
        )
        print(vitinit.initialize(self.vit, "mimetic", base="kaiming_uniform", seed=0))

    def training_step(self, batch: list[torch.Tensor], step: int) -> torch.Tensor:
        """Return the loss of a batch."""
        loss = torch.nn.functional.cross_entropy(self.vit(batch[0]), batch[1])
        if self.global_step % 50 == 0:
            print(f"step {self.global_step}: loss {loss.item():.2f}")
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16 - 0.3
data = DataLoader(TensorDataset(x, torch.tensor(digits.target)), batch_size=64, shuffle=True)
lightning.Trainer(max_steps=101, accelerator="cpu", logger=False, enable_checkpointing=False).fit(Classifier(), data)
