"""The accelerate file, and everything that the launcher can be told (accelerate 1.15.0)."""

from __future__ import annotations

from zerocfg.models.accelerate.cluster import ClusterConfig
from zerocfg.models.accelerate.launcher import Launcher
from zerocfg.models.accelerate.sagemaker import SageMakerConfig

__all__ = ["ClusterConfig", "Launcher", "SageMakerConfig"]
