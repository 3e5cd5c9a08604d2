"""Tables for notebooks and the report, as data frames: a row a thing, a column a question."""
