"""Hugging Face's ViT and Trainer on digits: initialise after the model is made, before the Trainer wraps it.

Needs `pip install transformers accelerate scikit-learn`.
"""

import tempfile

import torch
from sklearn.datasets import load_digits
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import vitinit

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16 - 0.3
examples = [{"pixel_values": image, "labels": label} for image, label in zip(x, digits.target, strict=True)]

model = ViTForImageClassification(
    ViTConfig(
        image_size=8, patch_size=2, num_channels=1, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, num_labels=10,
    )
)  # fmt: skip
print(vitinit.initialize(model, "mimetic", base="kaiming_uniform", seed=0))

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        max_steps=100,
        per_device_train_batch_size=64,
        learning_rate=2e-3,
        logging_steps=50,
        report_to=[],
        use_cpu=True,
    )
    Trainer(model, arguments, train_dataset=examples).train()
