"""Asynchronous barrier snapshots of dataflow jobs: the engine, the checks and the command line."""

__version__ = "0.1.0"
