"""The rules about comments and docstrings, for check_layers.py; no command of its own.

    from rules_words import higher_tags, unknown_words
    for line, text in unknown_words(Module("mcp_lazy.py")): ...
"""

import ast
import importlib
import keyword
import pkgutil
import re
import sys

from layers import docstring_of, number_of
from scopes import own_names

TAG = re.compile(r"\bL(\d+[bcde]?)\b")
QUOTED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?`")
WORD = re.compile(r"[A-Za-z_]\w*")
# Modules whose names a comment may quote without their module before them.
FAMILIAR = ("builtins", "os", "sys", "errno", "fcntl", "signal", "select", "selectors", "socket",
            "time", "subprocess", "json", "ssl", "importlib.util", "marshal")
BUILTIN_TYPES = (str, bytes, bytearray, memoryview, list, dict, set, OSError)


def prose(module):
    """(line, text) of every line of every comment and docstring."""
    yield from module.comments()
    for node in docstrings(module.tree):
        for offset, text in enumerate(node.value.splitlines()):
            yield node.lineno + offset, text


def docstrings(tree):
    """The string nodes that stand as statements, the module's map among them."""
    return filter(None, map(docstring_of, ast.walk(tree)))


def higher_tags(module):
    """No comment of a layer speaks of a higher layer, but for `Used by:` and the map."""
    the_map = module.docstring()
    for line, text in prose(module):
        if the_map and the_map.lineno <= line <= the_map.end_lineno:
            continue
        layer = module.layer_at(line)
        for match in TAG.finditer(text.split("Used by:")[0]):
            if number_of(match[1]) > layer.number:
                yield line, "%s speaks of %s" % (layer.tag, match[0])


def unknown_words(module):
    """A name in back quotes exists in the module, in Python or in its library."""
    known, library = own_words(module.tree), library_modules()
    outside = set(keyword.kwlist)
    for name in FAMILIAR:
        outside |= set(dir(importlib.import_module(name)))
    for kind in BUILTIN_TYPES:
        outside |= set(dir(kind))
    for line, text in prose(module):
        for quoted in QUOTED.findall(text):
            parts = quoted.split(".")
            if parts[0] not in library and not set(parts) <= known | outside:
                yield line, "`%s` is not in this file" % quoted


def library_modules():
    """The names of the standard library's modules (3.10 and later have the list)."""
    listed = getattr(sys, "stdlib_module_names", None)
    return listed or {m.name for m in pkgutil.iter_modules()} | set(sys.builtin_module_names)


def own_words(tree):
    """Names, attributes, arguments, and the words of constants that are no docstrings."""
    prose_nodes = {id(node) for node in docstrings(tree)}
    words = set()
    for node in ast.walk(tree):
        words |= own_names(node)
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, (ast.arg, ast.keyword)):
            words.add(node.arg)
        elif isinstance(node, ast.Constant) and id(node) not in prose_nodes:
            words |= set(WORD.findall(constant_text(node.value)))
    return words


def constant_text(value):
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else ""
