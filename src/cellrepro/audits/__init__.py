"""What does not repeat on this machine, what that does to cells, and what holding it costs."""
