"""A tensor compiler whose devices are plugins."""
