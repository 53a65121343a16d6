"""Recipes of TRL 1.16.0."""

from __future__ import annotations

from zerocfg.models.trl.recipe import TRAINERS, Recipe

__all__ = ["TRAINERS", "Recipe"]
