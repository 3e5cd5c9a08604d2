"""What does a store say as a whole? One page, a file for each of its sections; uses `pages`."""
