"""The analyses: one package a family, one module for what goes wrong in one place; a rule finds, its page explains."""
