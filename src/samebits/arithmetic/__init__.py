"""Arithmetic that gives equal bits on every machine with IEEE-754 numbers: mode portable.

Bits differ between machines by the order of additions, by multiplications and additions fused into
one operation, and by approximations of functions. Here products and scattered sums are exact in any
order, other sums add in an order that their length alone decides, and functions are fixed sequences
of single operations. It may import the files beside this folder, and `trace`.
"""
