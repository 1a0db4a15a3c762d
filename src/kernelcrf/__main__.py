"""Run the command line: `python -m kernelcrf` does the same as the command `kernelcrf`."""

from kernelcrf.cli import main

main()
