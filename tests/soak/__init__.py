"""Random kills of random processes under load, for as long as one likes; see `__main__`."""
