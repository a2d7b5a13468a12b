"""Jobs that ship with the program, and the demo that kills them and brings them back."""
