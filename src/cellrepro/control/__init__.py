"""What is held fixed: seeds, profiles, determinism."""
