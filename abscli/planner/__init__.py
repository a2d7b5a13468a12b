"""What a recovery must restart, and plans that say so: pure over a topology and the facts of an epoch."""
