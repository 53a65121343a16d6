"""The DeepSpeed JSON as of DeepSpeed 0.19.8."""

from zerocfg.models.deepspeed.config import DeepSpeedConfig

__all__ = ["DeepSpeedConfig"]
