"""What a comparison of groups says under the masks of each side, and whether that is the same."""
