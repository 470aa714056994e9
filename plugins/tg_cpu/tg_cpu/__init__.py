"""The CPU as a tgcore device."""
