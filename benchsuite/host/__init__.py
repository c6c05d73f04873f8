"""Find out what the machine is and what it does."""
