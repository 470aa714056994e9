"""`python -m tgcore.cli`."""

from tgcore.cli.main import main

main()
