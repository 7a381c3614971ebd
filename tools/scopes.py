"""Which names Python code binds and reads; the other tools import this, it is no command.

    from scopes import bound, loads
    bound(tree.body)    the names of the module's own scope
    loads(tree)         the Name nodes that can only mean a name of the module (or a builtin)
"""

import ast

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
IMPORTS = (ast.Import, ast.ImportFrom)
CLOSED = FUNCTIONS + COMPREHENSIONS + (ast.ClassDef,)


def top_level(statements):
    """The statements outside functions and classes, those inside if, try and loops too."""
    for node in statements:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from top_level(c for c in ast.iter_child_nodes(node)
                                 if isinstance(c, (ast.stmt, ast.ExceptHandler)))


def own_names(node):
    """The names that one node itself binds."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return {node.id}
    if isinstance(node, IMPORTS):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)):
        return {node.name} - {None}
    return set()


def bound(statements):
    """The names that statements bind in their own scope."""
    names, todo = set(), list(statements)
    while todo:
        node = todo.pop()
        names |= own_names(node)
        if not isinstance(node, CLOSED):
            todo.extend(ast.iter_child_nodes(node))
    return names


def loads(node, hidden=frozenset()):
    """Every Name below `node` that is read and that no function around it makes local."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in hidden:
            yield node
        return
    inner = hidden
    if isinstance(node, FUNCTIONS):
        body = node.body if isinstance(node.body, list) else [node.body]
        inner |= bound(body) | {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
    elif isinstance(node, COMPREHENSIONS):
        body = list(ast.iter_child_nodes(node))
        inner |= bound(body)
    for child in ast.iter_child_nodes(node):
        scoped = inner is not hidden and child in body
        yield from loads(child, inner if scoped else hidden)
