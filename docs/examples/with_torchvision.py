"""torchvision's ViT on digits: the method over torchvision's own weights, because no base is given."""

import torch
from sklearn.datasets import load_digits
from torchvision.models import VisionTransformer

import vitinit

images, labels = load_digits(return_X_y=True)
x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8).expand(-1, 3, -1, -1) / 16 - 0.3
y = torch.tensor(labels)

model = VisionTransformer(8, 2, num_layers=2, num_heads=4, hidden_dim=48, mlp_dim=96, num_classes=10)
print(vitinit.initialize(model, "mimetic", seed=0))

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    batch = torch.randint(len(x), (64,))
    loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.3f}")
