"""Pages: each one file of HTML that asks no server for anything.

What all are made of, and those about two results; they use figures, tables and the explorer.
"""
