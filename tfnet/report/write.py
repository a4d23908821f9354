"""Writes a report: the page, and each picture as a file."""

from pathlib import Path

from tfnet import files
from tfnet.report import style
from tfnet.report.facts import Facts
from tfnet.report.page import render_page
from tfnet.report.story import Study, tell

PAGE = "report.html"


def write_report(path: Path, facts: Facts) -> None:
    """Writes report.html, which holds every picture, and the pictures.

    All or nothing: a report that was there is replaced when the new one is
    whole. The same facts give the same bytes.

    Args:
      path: The directory to make, or that of an earlier report.
      facts: What to show.

    Raises:
      OSError: It could not be written, or `path` holds something else;
        what was there is unchanged.
    """
    study = Study(facts)
    with style.drawing():
        chapters = tell(study)
    page = render_page(study, chapters)
    # By name: a folder of a person's own pictures is none of an earlier report.
    names = [one.name for chapter in chapters for one in chapter.pictures]
    replaced = (PAGE, *(f"{name}.png" for name in names))
    with files.new_directory(path, replaces=replaced) as aside:
        for chapter in chapters:
            for picture in chapter.pictures:
                if picture.png is not None:
                    (aside / f"{picture.name}.png").write_bytes(picture.png)
        (aside / PAGE).write_bytes(page)
