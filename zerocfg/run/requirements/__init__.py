"""Which releases of the training libraries a project admits, as its files state them."""
