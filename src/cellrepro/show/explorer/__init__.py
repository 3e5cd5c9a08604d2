"""Two label images compared by hand: a widget of a canvas and a list, live or in a saved page.

It draws in the browser, in the colours of `figures.colours`.
"""
