"""Let `python -m daydream` be the command."""

from daydream.cli import main

main()
