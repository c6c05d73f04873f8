"""What the machine is and does."""
