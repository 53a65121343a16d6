"""What is run, and how much smaller than planned: configs, the device at hand, the reduced run."""
