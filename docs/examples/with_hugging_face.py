"""Hugging Face's ViT and Trainer on digits: initialise after the model is made, before the Trainer wraps it."""

import tempfile

import torch
from sklearn.datasets import load_digits
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import vitinit

images, labels = load_digits(return_X_y=True)
x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16 - 0.3
examples = [{"pixel_values": image, "labels": int(label)} for image, label in zip(x, labels, strict=True)]

sizes = {"image_size": 8, "patch_size": 2, "num_channels": 1, "num_labels": 10}
config = ViTConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, **sizes)
model = ViTForImageClassification(config)
print(vitinit.initialize(model, "mimetic", base="kaiming_uniform", seed=0))

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, max_steps=5, per_device_train_batch_size=64, report_to=[], logging_steps=1, use_cpu=True
    )
    Trainer(model, arguments, train_dataset=examples).train()
