"""One spec carried out: planned, trained or segmented in processes of its own, stored, judged."""
