"""Text as it is laid out: on one line, whatever it holds."""

import re

# Control characters, ends of lines and paragraphs, what turns the direction
# of all that follows, and bytes of file names that are no UTF-8. Joiners
# without a width stay: Persian is not spelt without them.
_NOT_SHOWN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def on_one_line(text: str) -> str:
    """Returns a text whose control characters are spelt as Python does.

    Names of classes and files come from folders: they may hold a line break,
    a tab or a terminal's commands, which must not break what is laid out.
    """
    return _NOT_SHOWN.sub(lambda found: ascii(found[0])[1:-1], text)
