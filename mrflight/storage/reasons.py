"""What a store's client says of a failure, as one line of a message of ours."""

from __future__ import annotations

import re

from mrflight.config.secret_options import USERINFO

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CHAIN = re.compile(r"\s*↳\s*")
_ANSWER = re.compile(
    r"<\?xml.*?<Code>(?P<code>.*?)</Code>\s*<Message>(?P<message>.*?)</Message>.*?</Error>",
    re.DOTALL,
)
"""Of S3, whose other elements may be the key that was used, and what was signed with it."""
_GIVEN = re.compile(
    r'(?<=Config error: )(?P<before>[^"]*)".*"'  # to the last quote: a value may have some itself
    r"|(?<=Invalid encryption type: ).*(?=\. Valid values)"
    r'|(?<=failed to parse )\\".*\\"(?= as )'
)
"""An option's value in the words of object_store, or deltalake: it may be a misplaced secret."""
_DATA_NODES = re.compile(r"(?<=All DataNodes failed: )\[DatanodeInfoProto.*")
_DATA_NODE = re.compile(r'ip_addr: "(?P<ip>[^"]*)".*?xfer_port: (?P<port>\d+)')
"""In the debug form of what the name node knows of each, two thousand characters."""
_SYSTEM_SAYS = re.compile(r'\bmessage: "([^"]+)"')
"""In the debug form of an error: obstore leaves the cause out before it."""


def reason(error: Exception) -> str:
    """Without colours, line ends and the debug form of the same, and most of what S3 answered.

    Values of options are left out, who asks in a URL, and a name node's stack in Java.
    """
    text, _, debug = _COLOURS.sub("", str(error)).partition("Debug source")
    text = text.partition("\n\tat ")[0]
    text = _ANSWER.sub(lambda answer: f"{answer['code']}: {answer['message']}", text)
    text = " ".join(_CHAIN.sub(": ", text).split())
    text = _DATA_NODES.sub(_addresses, text)
    text = _GIVEN.sub(lambda given: f"{given['before'] or ''}the value", USERINFO.sub("", text))
    cause = _SYSTEM_SAYS.search(debug)
    return text if cause is None or cause[1] in text else f"{text}: {cause[1]}"


def _addresses(nodes: re.Match[str]) -> str:
    """Where data nodes were to be reached, as the name node has it."""
    return ", ".join(f"{node['ip']}:{node['port']}" for node in _DATA_NODE.finditer(nodes[0]))
