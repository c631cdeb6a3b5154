"""Configuration of the documentation site; `make docs` builds it."""

import sys
from pathlib import Path

from wri import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from reference_pages import write_reference  # noqa: E402

project = "wri"
author = "The wri developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.md5"]
templates_path = ["_templates"]
nitpicky = True
nitpick_ignore_regex = [
    # types of other packages: the site is built without asking the net for their inventories
    ("py:.*", r"(?!wri\b).*"),
]
default_role = "code"  # `name` in docstrings
highlight_language = "none"  # blocks without a language are output of commands

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autosummary_generate = True
autodoc_member_order = "groupwise"
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "ignore_pattern": r"(demo|own_backbone)\.py",
    "download_all_examples": False,
    "capture_repr": ("_repr_html_",),
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1,
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "wri"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "wri"},
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"architecture": [], "changelog": [], "index": []}


def leave_out_inherited(app, what, name, member, skip, options):
    """Leave out what classes inherit from other packages, whose docstrings link to their own."""
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    module = getattr(function, "__module__", None) or "wri"
    return True if not module.startswith("wri") else skip


def setup(app):
    app.connect("autodoc-skip-member", leave_out_inherited)
    write_reference(HERE / "reference")
