"""A small grid that several tests change."""

GRID = {
    "title": "two rows",
    "rows": {
        "Trunc normal": {"base": "trunc_normal"},
        "Imp.-3": {"base": "kaiming_uniform", "method": {"name": "impulse", "kernel_size": 3}},
    },
    "blocks": [
        {
            "datasets": ["digits", {"name": "cifar10", "train_size": 500}],
            "model": {"preset": "vit_micro", "image_size": 8, "patch_size": 1},
            "recipe": {"name": "small", "epochs": 2},
            "seeds": [3, 0],
        }
    ],
}
