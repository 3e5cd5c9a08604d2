"""What is held fixed: seeds, modes, profiles, substitutes."""
