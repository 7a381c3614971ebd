"""The rules about sizes, for check_layers.py; no command of its own.

    from rules_sizes import long_lines, sizes, table
    for line, text in sizes(Module("mcp_lazy.py")): ...
"""

import ast

from scopes import FUNCTIONS

BUDGETS = dict(enumerate([130, 300, 600, 560, 450, 350, 480, 800, 350,
                          450, 800, 850, 850, 550, 1200, 700]))
BUDGETS[6.5] = 600      # L6b, cut out of L6 and L7 when the second era came
BUDGETS[8.5] = 330      # L8b, cut out of L15: what a relay needs of the command line
BUDGETS[8.75] = 230     # L8c, the half of L3 that relays do not load
BUDGETS[9.5] = 300      # L9b, cut out of L15: recordings for people
BUDGETS[10.5] = 260     # L10b, JSON by spans: the TOML editor's other half
BUDGETS[11] = 550       # with L11b the 850 of the design, and 100 more
BUDGETS[11.5] = 400     # L11b, cut out of L11: the write
BUDGETS[13.5] = 480     # L13b, cut out of L14: what a servers.json says
BUDGETS[13.75] = 280    # L13c, cut out of L14: its log
BUDGETS[13.875] = 250    # L13d, cut out of L14: what servers ask
BUDGETS[13.9375] = 680   # L13e, cut out of L14: one server of the hub, of either era, and all its lists
BUDGETS[14] = 830       # with L13d and L13e, cut out of it, 490 more than the design had: both eras on both sides
BUDGETS[14.5] = 700     # L14b, cut out of L15: config, doctor, hub; 50 more since lines end at column 120
GENERATED = 10      # copied in by a tool, so not among the hand-written lines
# The 8,300 of the first design did not know the second era (L6b), nor that every file of every client and each
# failure of a write asks for lines of its own, nor what servers ask a client (L13d). The limit of each layer is
# what holds; this is their sum, without HTTP and OAuth, which are to come.
TOTAL = 14200       # 200 more since no line is longer than COLUMNS
COLUMNS = 120
LINES = {ast.ClassDef: 250, ast.FunctionDef: 60, ast.AsyncFunctionDef: 60}
COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try)


def sizes(module):
    """Functions, classes, nesting, parameters, layers and the whole stay small."""
    for node in ast.walk(module.tree):
        if type(node) in LINES:
            for size, limit, what in measures(node):
                if size > limit:
                    yield node.lineno, "`%s` has %d %s, limit %d" % (node.name, size, what, limit)
    for layer in module.layers:
        lines, budget = length(layer), BUDGETS.get(layer.number, 0)
        if lines > budget * 1.5 and layer.number != GENERATED:
            yield layer.first, "%s has %d lines, limit 1.5 x %d" % (layer.tag, lines, budget)
    if hand_written(module) > TOTAL:
        yield 1, "%d hand-written lines, limit %d" % (hand_written(module), TOTAL)


def long_lines(module):
    """No line is longer than COLUMNS characters, line 1 and the generated part included."""
    for number, line in enumerate(module.lines, 1):
        if len(line) > COLUMNS:
            yield number, "the line has %d columns, limit %d" % (len(line), COLUMNS)


def measures(node):
    """(size, limit, what) of a function or class."""
    yield node.end_lineno - node.lineno + 1, LINES[type(node)], "lines"
    if not isinstance(node, ast.ClassDef):
        yield depth(node), 4, "levels of nesting"
        yield len(parameters(node)), 6, "parameters"


def parameters(function):
    """The parameters besides self and cls; *args and **kwargs are not counted."""
    args = function.args
    every = args.posonlyargs + args.args + args.kwonlyargs
    return [arg for arg in every if arg.arg not in ("self", "cls")]


def depth(node):
    """How deep compound statements lie inside one another; an inner function counts for itself."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, FUNCTIONS + (ast.ClassDef,)):
            adds = isinstance(child, COMPOUND) and not is_elif(node, child)
            deepest = max(deepest, depth(child) + adds)
    return deepest


def is_elif(node, child):
    return isinstance(node, ast.If) and isinstance(child, ast.If) \
        and node.orelse == [child] and child.col_offset == node.col_offset


def length(layer):
    return layer.last - layer.first + 1


def hand_written(module):
    return sum(length(layer) for layer in module.layers if layer.number != GENERATED)


def table(module):
    """Lines of text: each layer's size beside its budget."""
    yield "%-12s %6s %7s %6s" % ("layer", "lines", "budget", "used")
    for layer in module.layers:
        budget = BUDGETS.get(layer.number, 0)
        note = "  generated" if layer.number == GENERATED else ""
        yield "%-12s %6d %7d %5d%%%s" % (layer.tag + " " + layer.name, length(layer), budget,
                                         length(layer) * 100 // (budget or 1), note)
    yield "%-12s %6d %7d %5d%%" % ("hand-written", hand_written(module), TOTAL,
                                   hand_written(module) * 100 // TOTAL)
