"""Run the commands that only read on damaged stores, job files, plans and configuration files."""
