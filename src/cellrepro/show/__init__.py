"""Looking at it: tables, figures, explorer, report."""
