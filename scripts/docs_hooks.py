"""What the documentation site does to pages that are also read in the repository.

Pages link to files outside of `docs`, which the site does not have: there their names stand as code.
Whoever cannot see the pages gets names for what has none.
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


def on_page_content(html, page, config, files):  # noqa: ANN001, ANN201
    """A corner of a table that is empty is the head of nothing."""
    return html.replace("<th></th>", "<td></td>")


def on_post_page(output, page, config):  # noqa: ANN001, ANN201
    """The theme's search has no name."""
    return _with_named_search(output)


def on_post_template(output, template_name, config):  # noqa: ANN001, ANN201
    """Neither has it on the page for addresses that there are not."""
    return _with_named_search(output)


def _with_named_search(output):  # noqa: ANN001, ANN202
    dialog = 'data-md-component="search" role="dialog"'
    return output.replace(dialog, f'{dialog} aria-label="Search"')
