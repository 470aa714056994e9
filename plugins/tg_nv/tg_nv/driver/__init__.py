"""The kernel driver: its structures, its calls, and the interface that is built on them."""
