"""Read and write the binary model files of CRFsuite, without CRFsuite. The public names are in `kernelcrf.crfsuite`."""
