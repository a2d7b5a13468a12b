"""`abs` as one file: `make reader` builds it, `bootstrap` starts it."""
