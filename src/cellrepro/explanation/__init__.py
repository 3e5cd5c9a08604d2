"""Why masks changed: two results compared, explained, and what settings and tiles do."""
