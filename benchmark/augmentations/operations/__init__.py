"""Operations on whole batches of images, and the draws of timm. What is here imports torch."""
