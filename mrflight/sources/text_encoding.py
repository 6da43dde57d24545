"""Encodings of text files. The decoders of csv and json take UTF-8, so others are transcoded.

In most encodings a line end is one byte that no other character contains. Lines of such a file are
found in its bytes, from anywhere, and transcoded later. Other files (UTF-16, ISO 2022) are
transcoded as a stream from their start. Bytes that are not of the encoding become some that are not
UTF-8, so that their line is a bad row.
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache

import msgspec
import pyarrow as pa

from mrflight.errors import InputError, JobFileError

BYTE_ORDER_MARK = "\ufeff"
_UTF_8 = "utf-8"
_UTF_8_NAMES = ("utf-8", "utf-8-sig")
_CHINESE = ("big5", "big5hkscs", "cp950", "gb18030", "gb2312", "gbk")
_JAPANESE = ("cp932", "euc_jis_2004", "euc_jisx0213", "euc_jp", "shift_jis", "shift_jis_2004")
_KOREAN = ("cp949", "euc_kr", "johab")
_MULTIBYTE = frozenset((*_CHINESE, *_JAPANESE, "shift_jisx0213", *_KOREAN))
"""Encodings with characters of several bytes, none of which is a line end."""
_FIXED_WIDTH = frozenset(f"utf-{bits}{order}" for bits in (16, 32) for order in ("", "-le", "-be"))
"""Encodings in which no byte changes what those after its character mean."""

_ESCAPED = re.compile(rb"\xed([\xb0-\xb3])([\x80-\xbf])")
"""A byte that is not of the encoding, as a streamed line has it: a half of a pair, U+DC00 for 0."""


class TextEncoding(msgspec.Struct, frozen=True):
    """An encoding, and whether files are read as one stream."""

    codec: str
    """Python's name of it."""
    is_streamed: bool
    """True if a file is read from its start to its end: its line ends cannot be found in its bytes,
    or its rows may contain some."""

    @property
    def of_lines(self) -> str:
        """The encoding of the lines of an open file, which is UTF-8 if the file is streamed."""
        return _UTF_8 if self.is_streamed else self.codec

    @property
    def is_transcoded(self) -> bool:
        """Whether an open file has other bytes than the file itself."""
        return self.codec != self.of_lines

    @property
    def spoils_lines(self) -> bool:
        """Whether wrong bytes spoil their line only, so that those after it can be read."""
        return self.codec in _FIXED_WIDTH or _has_lines_in_bytes(self.codec)

    def transcode(self, stream: pa.NativeFile, url: str, *, strict: bool) -> pa.NativeFile:
        """Return the stream in the encoding `of_lines`.

        Bytes that are not of the encoding raise InputError if they spoil more than their line, and
        UnicodeDecodeError if the stream is ``strict``. Otherwise `decode` raises that for their
        line.
        """
        if not self.is_transcoded:
            return stream
        errors = "strict" if strict or not self.spoils_lines else _ESCAPE
        return pa.TransformInputStream(stream, _Transcoder(self, errors, url))

    def decode(self, line: bytes, errors: str = "strict") -> str:
        """Return the text of a line; UnicodeDecodeError has the bytes as they are in the file."""
        try:
            return line.decode(self.of_lines, errors)
        except UnicodeDecodeError as error:
            if not self.is_transcoded:
                raise
            wrong = _escaped_bytes(line[error.start :])
            raise UnicodeDecodeError(self.codec, wrong, 0, len(wrong), "wrong bytes") from error

    def show(self, line: bytes) -> str:
        r"""Return a line for people, with ``\xff`` in place of a byte that is no text."""
        if self.is_transcoded:
            line = _ESCAPED.sub(lambda found: b"\\x%02x" % _unescaped(found), line)
        return line.decode(self.of_lines, "backslashreplace")


UTF_8 = TextEncoding(_UTF_8, is_streamed=False)

_ESCAPE = "mrflight.escape"


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Handle an error of a decoder: see `_ESCAPED`."""
    assert isinstance(error, UnicodeDecodeError)
    wrong = error.object[error.start : error.end]
    return "".join(chr(0xDC00 + byte) for byte in wrong), error.end


codecs.register_error(_ESCAPE, _escape)


def _unescaped(found: re.Match[bytes]) -> int:
    return (found[1][0] & 0x0F) << 6 | found[2][0] & 0x3F


def _escaped_bytes(data: bytes) -> bytes:
    """Return the bytes that were escaped at the beginning; if there are none, the first character.

    There are none if a decoder gives half of a pair as a character.
    """
    wrong = bytearray()
    while found := _ESCAPED.match(data, 3 * len(wrong)):
        wrong.append(_unescaped(found))
    return bytes(wrong) or data[:3]


class _Transcoder:
    """Transcodes consecutive blocks of a file to UTF-8; an empty one is its end."""

    def __init__(self, encoding: TextEncoding, errors: str, url: str) -> None:
        self._encoding = encoding
        self._url = url
        self._decoder = codecs.getincrementaldecoder(encoding.codec)(errors)
        self._offset = 0

    def __call__(self, block: pa.Buffer) -> bytes:
        waiting = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(block, final=len(block) == 0)
        except UnicodeDecodeError as error:
            if self._encoding.spoils_lines:
                raise
            raise InputError(
                f"{self._url} is not {self._encoding.codec}: {error.reason} at byte "
                f"{self._offset - waiting + error.start:,}; set another encoding, or correct the "
                "file; bad_rows cannot skip them, as they change what the bytes after them mean"
            ) from error
        self._offset += len(block)
        return text.encode(errors="surrogatepass")


def text_encoding(name: str, *, is_streamed: bool) -> TextEncoding:
    """Return the encoding with this name; ``is_streamed`` if rows may contain line ends.

    Raises LookupError for an unknown name.
    """
    codec = _codec_of(name)
    return TextEncoding(codec, is_streamed or not _has_lines_in_bytes(codec))


def check_encoding(name: str, key: str) -> None:
    """Raise JobFileError, with the key of the job file, for the name of no encoding."""
    try:
        text_encoding(name, is_streamed=False)
    except LookupError as error:
        raise JobFileError(
            f"{key}: {name!r} is not an encoding; use a name that Python knows, such as utf-16, "
            "latin-1, windows-1252 or shift_jis"
        ) from error


@lru_cache
def _codec_of(name: str) -> str:
    try:
        "".encode(name)  # a LookupError for codecs that are not of text, such as hex
        found = codecs.lookup(name).name
        codecs.getincrementaldecoder(found)
    except ValueError as error:  # a null byte in the name, or the codec named undefined
        raise LookupError(name) from error
    return _UTF_8 if found in _UTF_8_NAMES else found


@lru_cache
def _has_lines_in_bytes(codec: str) -> bool:
    return codec == _UTF_8 or codec in _MULTIBYTE or _is_single_byte(codec)


def _is_single_byte(codec: str) -> bool:
    """Return whether each byte is a character, and those of ASCII are themselves."""
    decoder = codecs.getincrementaldecoder(codec)
    for byte in range(256):
        try:
            text = decoder().decode(bytes([byte]))
        except UnicodeError:
            text = "?"  # not every byte is a character
        if len(text) != 1 or (byte < 128 and text != chr(byte)):
            return False
    return True
