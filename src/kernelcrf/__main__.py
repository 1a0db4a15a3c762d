"""`python -m kernelcrf` is the command `kernelcrf`."""

from kernelcrf.cli import main

main()
