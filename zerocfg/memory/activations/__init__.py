"""Activations of a micro batch: traced on the real model class, or in closed form."""
