"""Which files belong together, who reads them, and what the training process finally gets."""
