"""Exceptions of Ballast: every one is an Error, and also the Python exception it resembles."""


class Error(Exception):
    """What the library refuses or fails at, in one line with the value and what was expected.

    code: 'invalid_argument', 'bad_file', 'io', 'out_of_memory', 'unsupported', 'not_finite' or
    'over_limit'.
    """

    code = "invalid_argument"


class ArgumentError(Error, ValueError):
    """A value, shape or call that the caller can change."""


class FileError(Error, OSError):
    """A file that is damaged, of another format or model, or cannot be read or written."""


class OutOfMemoryError(Error, MemoryError):
    """More memory is needed than is available."""


_KINDS = {
    "invalid_argument": ArgumentError,
    "not_finite": ArgumentError,
    "over_limit": ArgumentError,
    "unsupported": ArgumentError,
    "bad_file": FileError,
    "io": FileError,
    "out_of_memory": OutOfMemoryError,
}


def error_of(code: str, text: str) -> Error:
    """The exception for a code of the library."""
    error = _KINDS.get(code, Error)(text)
    error.code = code
    return error
