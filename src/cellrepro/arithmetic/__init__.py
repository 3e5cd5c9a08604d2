"""Arithmetic that gives equal bits on every machine with IEEE-754 numbers.

Bits differ between machines for three reasons: the order of additions, multiplications and
additions fused into one operation, and approximations of functions. Here none of the three is left:
products of matrices are sums of whole numbers, which are exact in any order; sums add in an order
that their length alone decides; and functions are fixed sequences of single operations.
"""
