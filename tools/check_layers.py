"""Proves the rules of the one-file layout; prints `mcp_lazy.py:LINE: text` per finding.

    python3 tools/check_layers.py --check            exit 1 when there is a finding
    python3 tools/check_layers.py --sizes            lines per layer beside their budget
    python3 tools/check_layers.py --module OTHER.py  look at another file

A rule that is in the way is changed here for everybody; there are no waivers.
"""

import argparse
import ast
import re
import sys

from layers import DEFAULT_MODULE, Module, tag_of
from rules_sizes import long_lines, sizes, table
from rules_words import higher_tags, unknown_words
from scopes import bound, loads, own_names, top_level

KERNEL_MODULES = set("os posix fcntl signal _signal select selectors socket _socket time"
                     " subprocess resource".split())
KERNEL = (3, 8.75)      # L8c is the half of L3 that relays do not load
NETWORK_MODULES = {"ssl", "http"}
HOT_MODULES = {"__future__", "sys", "posix", "_signal", "errno", "time", "_json", "_sha2", "_sha256"}
FALLBACK_MODULES = {"signal", "json", "hashlib"}    # public twins, inside except ImportError
DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_CALLS = {"list", "dict", "set", "bytearray"}
MUTATORS = set("append extend insert remove pop popitem clear sort reverse add discard update"
               " setdefault".split())
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*$")


def upward_names(module):
    """A layer refers to names of its own and of lower layers only."""
    for statement in module.tree.body:
        layer = module.layer_at(statement.lineno)
        for name in bound([statement]):
            if module.owner[name] is not layer:
                yield statement.lineno, "%s defines `%s` of %s again" % (
                    layer.tag, name, module.owner[name].tag)
        for node in loads(statement):
            target = module.owner.get(node.id)
            if target and target.number > layer.number:
                yield node.lineno, "%s refers to `%s` of %s" % (layer.tag, node.id, target.tag)


def doors(module):
    """The system is touched in L3 and its cold half only, the network stack from L12 on, the exit in L15."""
    kernel = set()      # names that top-level imports bind to modules of the kernel
    for node in module.beyond_launcher(ast.walk(module.tree)):
        number = module.layer_at(node.lineno).number
        for root in roots(node):
            if root in KERNEL_MODULES and number not in (0,) + KERNEL:
                yield node.lineno, "%s imports %s, only L3 may" % (tag_of(number), root)
            if root in NETWORK_MODULES and number < 12:
                yield node.lineno, "%s imports %s, only L12 and up may" % (tag_of(number), root)
            if root in KERNEL_MODULES and number == 0:
                kernel |= own_names(node)
        if number != 15 and leaves(node):
            yield node.lineno, "%s leaves the program, only L15 may" % tag_of(number)
    for node in module.beyond_launcher(loads(module.tree)):
        number = module.layer_at(node.lineno).number
        if node.id in kernel and number not in KERNEL:
            yield node.lineno, "%s uses `%s`, only L3 may" % (tag_of(number), node.id)


def roots(node):
    """The top-level packages that an import statement names; none for another node."""
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "").split(".")[0]]
    return [alias.name.split(".")[0] for alias in node.names] if isinstance(node, ast.Import) else []


def leaves(node):
    """True for sys.exit, and for SystemExit, exit and quit by name."""
    if isinstance(node, ast.Attribute):
        return node.attr == "exit" and isinstance(node.value, ast.Name) and node.value.id == "sys"
    target = node.exc if isinstance(node, ast.Raise) else getattr(node, "func", None)
    name = getattr(getattr(target, "func", target), "id", "")
    return name == "SystemExit" or isinstance(node, ast.Call) and name in ("exit", "quit")


def mutable_globals(module):
    """No `global`; what is mutable at top level is an upper-case table that nobody changes."""
    for node in top_level(module.tree.body):
        value = getattr(node, "value", None)
        called = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
        if isinstance(node, (ast.Assign, ast.AnnAssign)) \
                and (isinstance(value, DISPLAYS) or called in MUTABLE_CALLS):
            for name in bound([node]):
                if not CONSTANT.match(name):
                    yield node.lineno, "`%s` is mutable and global" % name
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            yield node.lineno, "global statement"
        name = changed_name(node)
        if CONSTANT.match(name) and name in module.owner:
            yield node.lineno, "the table `%s` is changed" % name


def changed_name(node):
    """The name of the variable whose content this node changes, or an empty string."""
    target = None
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        target = node.value
    elif isinstance(node, ast.AugAssign):
        target = node.target
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) \
            and node.func.attr in MUTATORS:
        target = node.func.value
    return target.id if isinstance(target, ast.Name) else ""


def cold_imports(module):
    """At top level only the hot list is imported, in L0; its fallbacks where it is missing."""
    statements = list(module.beyond_launcher(top_level(module.tree.body)))
    rescue = {id(node) for handler in statements if isinstance(handler, ast.ExceptHandler)
              and "ImportError" in ast.dump(handler.type or ast.Pass())
              for node in ast.walk(handler)}
    for node in statements:
        allowed = HOT_MODULES | (FALLBACK_MODULES if id(node) in rescue else set())
        for root in roots(node):
            if module.layer_at(node.lineno).number != 0 or root not in allowed:
                yield node.lineno, "imports %s at top level" % root


RULES = (upward_names, doors, sizes, long_lines, mutable_globals, cold_imports, higher_tags, unknown_words)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 when there is a finding")
    parser.add_argument("--sizes", action="store_true", help="print the lines per layer")
    parser.add_argument("--module", default=DEFAULT_MODULE, help="file to look at")
    options = parser.parse_args()
    module = Module(options.module)
    findings = sorted({finding for rule in RULES for finding in rule(module)})
    for line, text in findings:
        print("%s:%d: %s" % (module.file_name, line, text))
    if options.sizes:
        print("\n".join(table(module)))
    return 1 if findings and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
