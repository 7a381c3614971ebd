"""Reads a module as layers; the other tools import this, it is no command.

    from layers import Module
    module = Module("mcp_lazy.py")
    for layer in module.layers: print(layer.tag, layer.first, layer.last)

A layer begins at its banner (`# L5 CHILD - ...`) and ends before the next one.
Whatever stands above the first banner belongs to the first layer.  L6b is a layer of its
own between L6 and L7 (its number here is 6.5), and so are L8b, L8c (8.75) and others.
"""

import ast
import io
import os
import re
import sys
import tokenize

from scopes import bound, loads

BANNER = re.compile(r"^# L(\d+[bcde]?) ([A-Z]+) - ")
PARTS = {"": 0, "b": 0.5, "c": 0.75, "d": 0.875, "e": 0.9375}
RULE = re.compile(r"^# [=-]{20,}$")
FIELD = re.compile(r"\b(Uses|Used by|Owns|Never|Tests):")
DEFAULT_MODULE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                              "mcp_lazy.py")


def number_of(digits):
    """6 for "6", 6.5 for "6b", 8.75 for "8c"."""
    return int(digits.rstrip("bcde")) + PARTS[digits.lstrip("0123456789")]


def tag_of(number):
    return "L%d%s" % (number, {part: letter for letter, part in PARTS.items()}[number % 1])


class Layer:
    """One layer: number, name, first and last line (from 1), banner fields."""

    def __init__(self, number, name, banner, fields):
        self.number, self.name, self.fields = number, name, fields
        self.banner = banner            # the line with the tag
        self.first = self.last = banner
        self.names = set()              # defined at top level, imports included
        self.uses = {}                  # number of another layer -> names used

    @property
    def tag(self):
        return tag_of(self.number)


class Module:
    """A parsed module with its layers, top-level names and launcher length."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.text = file.read()
        self.path, self.file_name = path, os.path.basename(path)
        self.lines = self.text.splitlines()
        self.tree = ast.parse(self.text, path)
        self.layers = find_layers(self.lines)
        self.owner = {}
        if not self.layers:
            sys.exit("%s has no layer banner (# L0 PRELUDE - ...)" % self.file_name)
        for work in self._define, self._refer:
            for statement in self.tree.body:
                work(statement)
        # The shebang line says how many characters the launcher is.
        size = re.search(r"\.read\((\d+)\)", self.lines[0] if self.lines else "")
        self.launcher_last = self.text[:int(size[1])].count("\n") + 1 if size else 0

    def layer_at(self, line):
        """The layer that holds a line."""
        return [layer for layer in self.layers if layer.first <= line][-1]

    def _define(self, statement):
        layer = self.layer_at(statement.lineno)
        names = bound([statement])
        layer.names |= names
        for name in names:
            self.owner.setdefault(name, layer)

    def _refer(self, statement):
        layer = self.layer_at(statement.lineno)
        for node in loads(statement):
            target = self.owner.get(node.id)
            if target and target is not layer:
                layer.uses.setdefault(target.number, set()).add(node.id)

    def beyond_launcher(self, nodes):
        """The nodes that have a line and do not belong to the launcher."""
        return (node for node in nodes if getattr(node, "lineno", 0) > self.launcher_last)

    def docstring(self):
        """The string node of the module's docstring, or None."""
        return next(filter(None, map(docstring_of, self.tree.body)), None)

    def comments(self):
        """(line, text) of every comment, in order."""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def docstring_of(statement):
    """The string node of a statement that is a docstring: "..." or __doc__ = "..."; else None."""
    value, targets = getattr(statement, "value", None), getattr(statement, "targets", [])
    if isinstance(statement, ast.Expr) or "__doc__" in [getattr(t, "id", "") for t in targets]:
        return value if isinstance(getattr(value, "value", None), str) else None
    return None


def find_layers(lines):
    """The layers whose banners stand in `lines`, in order of the file."""
    layers = []
    for index, line in enumerate(lines):
        match = BANNER.match(line)
        if match:
            layer = Layer(number_of(match[1]), match[2], index + 1, banner_fields(lines[index + 2:]))
            layer.first -= bool(index and RULE.match(lines[index - 1]))
            layers.append(layer)
    for layer, following in zip(layers, layers[1:]):
        layer.last = following.first - 1
    if layers:
        layers[0].first, layers[-1].last = 1, len(lines)
    return layers


def banner_fields(lines):
    """{"Uses": "L1 L2", ...} of the lines below a banner's first rule."""
    block = []
    for line in lines:
        if RULE.match(line) or not line.startswith("#"):
            break
        block.append(line.lstrip("# "))
    parts = FIELD.split(" ".join(block))
    return {key: " ".join(value.split()) for key, value in zip(parts[1::2], parts[2::2])}
