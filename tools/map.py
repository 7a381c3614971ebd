"""Prints the layers of the module: tag, first line, number of lines, what each uses.

    python3 tools/map.py                     the map
    python3 tools/map.py --check             exit 1 when the docstring or a banner is wrong
    python3 tools/map.py --module OTHER.py   look at another file

What a layer uses is computed from its code: the layers whose top-level names it reads, those
that an import binds among them.
"""

import argparse
import os
import re
import sys

from layers import DEFAULT_MODULE, Module, number_of, tag_of

FIELDS = ("Uses", "Used by", "Owns", "Never", "Tests")
MAP_ENTRY = re.compile(r"\bL(\d+[bcde]?) +([A-Z]+)\b")
TAG = re.compile(r"\bL(\d+[bcde]?)\b")


def tags(numbers):
    return " ".join(map(tag_of, sorted(numbers))) or "-"


def rows(module):
    """Lines of text: the computed map."""
    yield "%-5s %-9s %6s %6s  %s" % ("tag", "name", "line", "lines", "uses")
    for layer in module.layers:
        yield "%-5s %-9s %6d %6d  %s" % (layer.tag, layer.name, layer.first,
                                         layer.last - layer.first + 1, tags(layer.uses))


def map_findings(module):
    """The docstring's map lists exactly the layers there are."""
    docstring = module.docstring()
    if not docstring:
        yield 1, "no docstring with the map"
        return
    first = docstring.lineno
    listed = [(number_of(number), name) for number, name in MAP_ENTRY.findall(docstring.value)]
    present = [(layer.number, layer.name) for layer in module.layers]
    for number, name in sorted(set(present) - set(listed)):
        yield first, "the map does not list %s %s" % (tag_of(number), name)
    for number, name in sorted(set(listed) - set(present)):
        yield first, "the map lists %s %s, which is not there" % (tag_of(number), name)
    if len(set(listed)) != len(listed):
        yield first, "the map lists a layer twice"


def order_findings(module):
    """Layers stand in the order of their numbers, each once."""
    for lower, upper in zip(module.layers, module.layers[1:]):
        if upper.number <= lower.number:
            yield upper.first, "%s stands after %s" % (upper.tag, lower.tag)


def banner_findings(module):
    """Every banner has its fields, and they say what is so."""
    root = os.path.dirname(os.path.abspath(module.path))
    for layer in module.layers:
        for field in FIELDS:
            if not layer.fields.get(field):
                yield layer.banner, "%s has no `%s:` in its banner" % (layer.tag, field)
        for name in owned(layer):
            if name not in layer.names:
                yield layer.banner, "%s does not define `%s`, which it says it owns" % (layer.tag, name)
        for path in re.findall(r"\S+\.py\b", layer.fields.get("Tests", "")):
            if not os.path.isfile(os.path.join(root, path)):
                yield layer.banner, "%s has no tests: %s is not there" % (layer.tag, path)
        yield from relation(module, layer, "Uses", set(layer.uses))
        users = {other.number for other in module.layers if layer.number in other.uses}
        yield from relation(module, layer, "Used by", users)


def owned(layer):
    """The names after `Owns:`, without quotes, brackets and final full stop; - means none."""
    words = re.split(r"[,\s]+", layer.fields.get("Owns", "").rstrip(".").replace("`", ""))
    names = [word.replace("()", "").split(".")[0] for word in words]
    return [name for name in names if name and name != "-"]


def relation(module, layer, field, computed):
    """The tags in one field against the computed ones; layers not written yet may be named."""
    present = {other.number for other in module.layers}
    said = {number_of(number) for number in TAG.findall(layer.fields.get(field, ""))} & present
    if said != computed:
        yield layer.banner, "%s says `%s: %s`, the code says %s" % (
            layer.tag, field, tags(said), tags(computed))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 when there is a finding")
    parser.add_argument("--module", default=DEFAULT_MODULE, help="file to look at")
    options = parser.parse_args()
    module = Module(options.module)
    if not options.check:
        print("\n".join(rows(module)))
        return 0
    findings = [finding for rule in (map_findings, order_findings, banner_findings)
                for finding in rule(module)]
    for line, text in findings:
        print("%s:%d: %s" % (module.file_name, line, text))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
