"""Try to break kernelcrf and count what fails; the results are in docs/reliability."""
