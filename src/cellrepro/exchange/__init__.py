"""A run handed to someone else: passports, exported files, and checking them without trust."""
