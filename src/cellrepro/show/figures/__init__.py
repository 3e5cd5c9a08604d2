"""What results look like, drawn with matplotlib; uses nothing else of this room but speeds."""
