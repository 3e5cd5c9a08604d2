"""Many specs from one file: read, carried out on devices and machines, and watched."""
