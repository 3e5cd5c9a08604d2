"""Pages about two results of one image: each one file of HTML that asks no server for anything."""
