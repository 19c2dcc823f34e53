"""What the documentation site does to pages that are also read in the repository.

Pages link to files outside of `docs`, which the site does not have: there their names stand as code.
"""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown, page, config, files):  # noqa: ANN001, ANN201
    """Links that lead out of `docs` as text."""
    folder = (DOCS / page.file.src_uri).parent

    def replaced(link):  # noqa: ANN001, ANN202
        target = (folder / link[2]).resolve()
        if target.is_relative_to(DOCS):
            return link[0]
        path = str(target.relative_to(DOCS.parent))
        text = link[1].strip("`")
        return f"`{path}`" if text == path else f"{link[1]} (`{path}`)"

    return _LINK.sub(replaced, markdown)
