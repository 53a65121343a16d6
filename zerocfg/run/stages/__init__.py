"""What each stage on the way to the training process makes of the settings: launcher, plugin, Trainer, engine."""
