"""What the commands answer: a file for each kind of result, with its JSON document and its lines.

Each file holds the document as a dataclass, whose fields are the keys that ``--json`` prints, and
a function that makes an `Answer` of a result.
"""
