"""A page as a browser takes it: what it loads, where its links and forms go, and that nothing in it is inline."""

from html.parser import HTMLParser


class Tags(HTMLParser):
    """What a page loads and where its links and forms go."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.loaded: list[str] = []
        self.names: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        found = [value or "" for name, value in attrs if name in {"src", "href", "action"}]
        self.addresses += found
        if tag in {"link", "script", "img", "iframe", "object", "embed", "source", "use", "image"}:
            self.loaded += found
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]  # the policy forbids both
