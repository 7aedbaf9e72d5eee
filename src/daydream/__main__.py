"""Let `python -m daydream` be the command."""

from daydream.cli.main import main

main()
