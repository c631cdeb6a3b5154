"""A page read without a browser."""

from html.parser import HTMLParser

EMPTY = {"img", "meta", "input", "br"}


class ParsedPage(HTMLParser):
    """Text, elements, links and figures of a page; refuses a page with unclosed elements."""

    def __init__(self, html):
        super().__init__()
        self.elements = []  # (tag, attributes) in order
        self.headings, self.alternatives = [], []
        self._words, self._open = [], []
        self.feed(html)
        self.close()
        assert self._open == []

    @property
    def text(self):
        return " ".join(" ".join(self._words).split())

    @property
    def ids(self):
        return [given["id"] for _, given in self.elements if "id" in given]

    @property
    def links(self):
        return [given["href"] for tag, given in self.elements if tag == "a"]

    def named(self, tag):
        """Attributes of all elements with this tag."""
        return [given for each, given in self.elements if each == tag]

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, text):
        tag = self._open[-1] if self._open else ""
        if tag == "desc":
            self.alternatives.append(text)
        elif tag not in ("style", "title"):
            self._words.append(text)
        if tag in ("h1", "h2", "h3"):
            self.headings.append((int(tag[1]), text))
