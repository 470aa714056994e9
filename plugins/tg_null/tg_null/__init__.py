"""A tgcore device that compiles everything and runs nothing."""
