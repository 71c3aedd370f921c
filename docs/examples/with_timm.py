"""timm's ViT on digits: initialise, then train as ever."""

import timm
import torch
from sklearn.datasets import load_digits

import vitinit

images, labels = load_digits(return_X_y=True)
x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16 - 0.3
y = torch.tensor(labels)

small = {"img_size": 8, "patch_size": 1, "in_chans": 1, "embed_dim": 48, "depth": 2, "num_heads": 4}
model = timm.create_model("vit_tiny_patch16_224", num_classes=10, **small)
print(vitinit.initialize(model, "impulse", base="kaiming_uniform", solver="svd", position_scale=18.0, seed=0))

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    batch = torch.randint(len(x), (64,))
    loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.3f}")
