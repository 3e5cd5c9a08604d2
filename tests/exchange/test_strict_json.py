"""JSON of others: what is read means one thing; everything else is one clear message."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellrepro.exchange.strict_json import read_json
from samebits.errors import BadInput

REFUSED = {
    "no JSON": (b"{'a': 1}", "no JSON"),
    "cut off": (b'{"a": [1, 2', "no JSON"),
    "two documents": (b"{} {}", "no JSON"),
    "nothing": (b"", "no JSON"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "byte 0 is no UTF-8"),
    "a byte order mark": (b'\xef\xbb\xbf{"a": 1}', "no JSON"),
    "a broken character": (b'"\xc3("', "byte 1 is no UTF-8"),
    "a key twice": (b'{"a": 1, "b": {"c": 1, "c": 1}}', "the key 'c' twice"),
    "a key twice, once escaped": (b'{"a": 1, "\\u0061": 2}', "the key 'a' twice"),
    "NaN": (b'{"a": NaN}', "NaN, which is no number"),
    "infinity": (b"[-Infinity]", "-Infinity, which is no number"),
    "a number beyond floats": (b"[1e999]", "'1e999', which is larger than any"),
    "an integer of 64 bits and one": (b"[9223372036854775808]", "does not fit into 64 bits"),
    "a million digits": (b"[" + b"9" * 1_000_000 + b"]", "does not fit into 64 bits"),
    "half of a pair": (b'["\\ud800"]', "half of a surrogate pair"),
    "half of a pair as a key": (b'{"\\udfff": 1}', "half of a surrogate pair"),
    "one list too deep": (b"[" * 65 + b"]" * 65, "deeper than 64"),
    "a million lists deep": (b"[" * 1_000_000 + b"]" * 1_000_000, "deeper than 64"),
    "a million objects deep": (b'{"a":' * 1_000_000, "deeper than 64"),
    "too large": (b'"' + b"a" * 2**24 + b'"', "16777218 bytes of JSON, expected 16777216"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_what_readers_would_take_differently_is_refused(text, said):
    with pytest.raises(BadInput) as caught:
        read_json(text, where="x.json, line 3")
    message = str(caught.value)
    assert message.startswith("x.json, line 3: ")
    assert said in message
    assert len(message) < 400
    assert message.isascii()


def test_the_limits_themselves_are_allowed():
    limits = [-(2**63), 2**63 - 1, 1.7976931348623157e308, "\U0001f52c \x1b[2J"]
    assert read_json(json.dumps(limits).encode(), where="x") == limits
    assert read_json(b"[" * 64 + b"]" * 64, where="x") == json.loads("[" * 64 + "]" * 64)
    assert read_json(b"[1]", where="x", most_bytes=3) == [1]
    with pytest.raises(BadInput, match="3 bytes of JSON, expected 2"):
        read_json(b"[1]", where="x", most_bytes=2)


@pytest.mark.parametrize("text", ["\x1b[2J", "\r", "\x00", "\x7f", "\x9b"])
def test_commands_of_a_terminal_are_refused_in_what_is_shown(text):
    for document in ([text], {text: 1}):
        with pytest.raises(BadInput, match="a terminal takes for commands"):
            read_json(json.dumps(document).encode(), where="x", is_shown=True)
    assert read_json(b'["a\\tb\\n\\u00e9"]', where="x", is_shown=True) == ["a\tb\né"]


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(value=_VALUES, as_ascii=st.booleans())
@settings(max_examples=100, deadline=None)
def test_what_is_allowed_is_read_as_python_reads_it(value, as_ascii):
    text = json.dumps(value, ensure_ascii=as_ascii).encode()
    read = read_json(text, where="x")
    assert read == json.loads(text) == value


@given(content=st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_read_or_refused(content):
    try:
        value = read_json(content, where="x")
    except BadInput:
        return
    assert json.loads(content) == value
