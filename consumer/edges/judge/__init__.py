"""Judge providers, one file each."""
