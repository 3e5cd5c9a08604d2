"""Which images and masks are given? Files and folders decoded and checked, made up, or fetched.

May import `store` and the rooms above it.
"""
