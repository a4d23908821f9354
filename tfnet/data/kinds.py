"""What kind of file it is, by its first bytes, and why it can't be read.

The decoder says of everything that it does not take that it is no image. A
person can do something about a TIFF, or about a WebP with alpha.
"""

import re

# So much of a file tells.
HEAD_BYTES = 1024

_READ = "JPEG, PNG, GIF, BMP or WebP"

_OF_BYTES: tuple[tuple[bytes, str], ...] = (
    (rb"\xff\xd8\xff", "a JPEG"),
    (rb"\x89PNG\r\n", "a PNG"),
    (rb"GIF8[79]a", "a GIF"),
    # Two letters alone may begin a text: behind the size there are zeros.
    (rb"BM.{4}\0{4}", "a BMP"),
    (rb"RIFF.{4}WEBP", "a WebP"),
    (rb"II[*+]\0|MM\0[*+]", "a TIFF"),
    (rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51", "a JPEG 2000"),
    (rb"\0\0\0\x0cJXL |\xff\x0a", "a JPEG XL"),
    (rb".{4}ftypavi[fs]", "an AVIF"),
    (rb".{4}ftyp(hei|hev|mif1|msf1)", "a HEIC"),
    (rb"8BPS", "a Photoshop file"),
    (rb"\x00\x00\x01\x00", "an icon"),
    (rb"P[1-7]\s+[#\dW]", "a Netpbm file"),
    (rb"\s*(<\?xml.*)?<svg", "an SVG"),
)
_DECODED = ("a JPEG", "a PNG", "a GIF", "a BMP", "a WebP")

# What a file is called that a person takes for an image.
_ENDINGS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".gif"),
    *(".bmp", ".dib", ".webp"),
    *(".tif", ".tiff", ".dng", ".jp2", ".j2k", ".jpx", ".jpf", ".jxl"),
    *(".heic", ".heif", ".avif", ".psd", ".ico", ".svg"),
    *(".pbm", ".pgm", ".ppm", ".pnm", ".pam", ".tga"),
)


def is_named_as_image(name: str) -> bool:
    """Says whether the name of a file is one of an image, of any format."""
    return name.lower().endswith(_ENDINGS)


def kind_of(head: bytes) -> str | None:
    """Returns what an image is, such as `a JPEG`; None: it is none.

    Args:
      head: The first `HEAD_BYTES` of a file, or all of it.
    """
    for pattern, kind in _OF_BYTES:
        if re.match(pattern, head[:HEAD_BYTES], re.DOTALL):
            return kind
    return None


def why_no_image(data: bytes) -> tuple[str, str]:
    """Says of a file that could not be decoded what it is, and what helps.

    Args:
      data: Its contents.

    Returns:
      `no image that can be read`, with the cause; what can be done about it,
      empty where there is no more than to mend it.
    """
    kind = kind_of(data)
    convert = "convert it to PNG or JPEG"
    why, remedy = f" ({_READ})", ""
    if not data:
        why = ": it is empty"
    elif kind == "a WebP" and _webp_with(data):
        why, remedy = f": it is a WebP with {_webp_with(data)}", convert
    elif kind in _DECODED:
        why = f": it is {kind} that is damaged, cut short or of a rare kind"
    elif kind is not None:
        why, remedy = f": it is {kind}", convert
    return f"no image that can be read{why}", remedy


def _webp_with(data: bytes) -> str:
    """Returns what a WebP file has that the decoder does not take.

    WebP Container Specification (Google): the flags of VP8X follow its name
    and size; in VP8L, alpha is bit 28 behind the signature.
    """
    name, flags = data[12:16], data[20:21]
    if name == b"VP8X" and flags and flags[0] & 0x02:
        return "animation"
    has_alpha = name == b"VP8X" and flags and flags[0] & 0x10
    is_lossless = name == b"VP8L" and len(data) > 24
    if has_alpha or (is_lossless and data[24] & 0x10):
        return "alpha"
    return ""
