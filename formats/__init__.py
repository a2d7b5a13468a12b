"""Bytes <-> model: topology and plan files, the native store, and other systems' checkpoints."""
