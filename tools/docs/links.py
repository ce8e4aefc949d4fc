"""Converts links between pages. Links in pages work in the repository; the site has other paths."""

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = "docs/"

# Pages and pictures of the repository outside of docs/, and their paths on the site.
OUTSIDE = {
    "CHANGELOG.md": "internals/changelog.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "android_demo/README.md": "android/demo_app.md",
    "android_demo/sdk/README.md": "android/java_sdk.md",
    "examples/federated/README.md": "examples/federated.md",
    "examples/federated/rounds.svg": "examples/rounds.svg",
}
_CODE_OR_LINK = re.compile(r"(?P<code>^```.*?^```|`[^`\n]*`)|\[(?P<text>[^\]]*)\]\((?P<to>[^)\s]+)\)", re.M | re.S)


def for_site(markdown: str, uri: str) -> str:
    """Returns the Markdown of the site's page `uri` with the site's links."""
    inverse = {to: path for path, to in OUTSIDE.items()}
    folder = posixpath.dirname(inverse.get(uri, DOCS + uri))

    def replace(match: re.Match[str]) -> str:
        to = match["to"]
        if match["code"] or to.startswith("#") or re.match(r"[a-z]+:", to):
            return match[0]
        path, mark, anchor = to.partition("#")
        target = posixpath.normpath(posixpath.join(folder, path))
        if target == "README.md":  # the site's first page replaces it
            target = "docs/index.md"
        if target.startswith(DOCS):
            there = target.removeprefix(DOCS)
        elif target in OUTSIDE:
            there = OUTSIDE[target]
        elif (ROOT / target).exists():
            return f"`{target}`" if posixpath.basename(target) in match["text"] else f"{match['text']} (`{target}`)"
        else:
            return match[0]  # MkDocs reports it
        return f"[{match['text']}]({relative(there, uri)}{mark}{anchor})"

    return _CODE_OR_LINK.sub(replace, markdown)


def relative(there: str, uri: str) -> str:
    """Returns the path of the site's page `there` relative to the page `uri`."""
    return posixpath.relpath(there, posixpath.dirname(uri) or ".")
