"""Hardware command queues: what every device driven by queues of commands has in common."""
