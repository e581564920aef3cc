"""How Sphinx makes the site. The pages are plain Markdown that a forge shows too: docs/build.py gathers them.

Nothing is fetched: no inventories of other sites, no fonts, no scripts from elsewhere.
"""

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "Lowtide"
author = "the Lowtide authors"
version = release = tomllib.loads((HERE.parent / "Cargo.toml").read_text())["workspace"]["package"]["version"]
html_title = "Lowtide"

extensions = ["myst_parser", "crosslinks"]
myst_heading_anchors = 4
# rustdoc's pages are laid beside ours when ours are done.
myst_url_schemes = {"http": None, "https": None, "mailto": None, "rust": "reference/rust/{{path}}"}
# A block without a language is what a shell or a program prints.
highlight_language = "text"
# Docstrings of the Rust side have one backtick around code.
default_role = "literal"
smartquotes_action = "D"  # dashes, but no quotes: "auto" is a word that is typed
nitpicky = True
# Types of other packages and of Python itself have no page here, and nobody is asked for theirs.
nitpick_ignore_regex = [("py:.*", r"(?!lowtide\.).*")]
python_maximum_signature_line_length = 72
python_display_short_literal_types = True

html_theme = "furo"
html_static_path = [str(HERE / "style.css")]
html_css_files = ["style.css"]
html_copy_source = False
html_show_copyright = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#0b6e8f", "color-brand-content": "#0b6e8f"},
    "dark_css_variables": {"color-brand-primary": "#6fc7e3", "color-brand-content": "#6fc7e3"},
}
