"""timm's ViT on digits: initialise, then train as ever. Needs `pip install timm scikit-learn`.

The same works with `torchvision.models.VisionTransformer`, and without `base` over the library's own weights.
"""

import timm
import torch
from sklearn.datasets import load_digits

import vitinit

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16 - 0.3
y = torch.tensor(digits.target)

model = timm.create_model(
    "vit_tiny_patch16_224", img_size=8, patch_size=2, in_chans=1, embed_dim=48, depth=2, num_heads=4, num_classes=10
)
print(vitinit.initialize(model, "mimetic", base="kaiming_uniform", seed=0))

optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(101):
    batch = torch.randint(len(x), (64,))
    loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.2f}")
