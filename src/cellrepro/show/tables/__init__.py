"""Tables as data frames, for what no result says by itself: several results beside each other."""
