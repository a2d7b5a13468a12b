"""What commands do to the machine, seen from outside of their process.

`python -m tests.guard` runs every reading command on every hostile store and prints what each of them touched.
"""
