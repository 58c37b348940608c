"""pitfall_lab: see where PyTorch bites."""
