"""Reserved for running on a cluster; nothing is here yet. It will know nothing of this benchmark."""
