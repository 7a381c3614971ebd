"""Real clients and `mcp-lazy config`: each reads and rewrites the files that were edited, for acceptance.py.

    for verdict, what, detail in configured(scratch, "codex"): ...

A client is installed from npm and works in an empty home; its own commands add the servers and show them. The proxy
that it is told of does not exist, so that nothing leaves this machine.
"""
import collections
import json
import os
import re
import shutil
import subprocess

from acceptance_sections import check
import harness
import real

RUN_S = 90.0     # one command of a client, with the servers that it starts
NOWHERE = "http://127.0.0.1:9"
QUIET = {"HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "NO_COLOR": "1", "DISABLE_AUTOUPDATER": "1",
         "OPENCODE_DISABLE_AUTOUPDATE": "1", "GEMINI_CLI_TRUST_WORKSPACE": "true"}  # else Gemini starts no server here
ARGUMENTS = ["sp ace \"quoted\" \\ back ünï", "--flag", "", "-y", "last"]
CACHE = "MCP_LAZY_CACHE_DIR"


# What a client shows: {name: its registration, or the words of it}, and {name: connected} if its list connects.

def of_lines(one):
    """`NAME: COMMAND ARGS (stdio) - STATUS`, a mark before or after."""
    found = re.findall(r"^(?:\S )?(.+?): (.+?) *(?: \(stdio\))? - (?:\W )?(\w.*)$", one.client("mcp", "list"), re.M)
    return {name: shown for name, shown, _ in found}, {name: status == "Connected" for name, _, status in found}


def of_json(one):
    found, single = [json.loads(one.client("mcp", *words, "--json")) for words in (["list"], ["get", "demo"])]
    if one.which == "codex":
        found, single = {entry["name"]: entry["transport"] for entry in found}, {"demo": single["transport"]}
    found = found.get("mcpServers", found)
    assert single["demo"] == found["demo"], "`mcp get` shows %s, `mcp list` %s" % (single, found["demo"])
    return found, {}


def of_opencode(one):
    listed = re.findall(r"^\S  \S (.*) (\w+)$", one.client("mcp", "list"), re.M)
    return json.loads(one.client("debug", "config"))["mcp"], {name: status == "connected" for name, status in listed}


# `scope`: options of add and remove; `odd`: as strange a name as the client takes; `knows`: what it has, "replace" is
# that its add takes a name that is there already.
Client = collections.namedtuple("Client", "package file scope odd shows knows")
ODD, USER = "odd. \"ï'/b", ["-s", "user"]
CLIENTS = {
    "claude": Client("@anthropic-ai/claude-code", ".claude.json", USER, "-odd_1", of_lines, "remove transport"),
    "codex": Client("@openai/codex", ".codex/config.toml", [], "odd.@a:b/c", of_json, "remove replace"),
    "gemini": Client("@google/gemini-cli", ".gemini/settings.json", USER, ODD, of_lines, "remove replace transport"),
    "opencode": Client("opencode-ai", ".config/opencode/opencode.jsonc", [], ODD, of_opencode, "replace"),
    "qwen": Client("@qwen-code/qwen-code", ".qwen/settings.json", USER, ODD, of_lines, "remove replace transport"),
    "copilot": Client("@github/copilot", ".copilot/mcp-config.json", [], ODD, of_json, "remove transport"),
}


class Desk:
    """A client in an empty home, the relay `mcp-lazy`, and the same program under a name that is no relay's."""

    def __init__(self, scratch, box, env, which):
        self.which, self.kind, self.scratch, self.box = which, CLIENTS[which], scratch, box
        # With the tag: without it npm picks an old version where Node is older than the newest says it needs.
        self.program = str(scratch.npm("cli-" + which, self.kind.package + "@latest") / which)
        self.env = dict(env, HOME=str(box.home), **QUIET)
        self.file, self.work, self.cache = box.home / self.kind.file, box.path / "work", str(box.path / "recordings")
        self.work.mkdir()
        self.relay, self.example = [str(box.path / name) for name in ("mcp-lazy", "example")]
        for program in (self.relay, self.example):
            os.chmod(shutil.copy(str(harness.MODULE), program), 0o755)
        self.demo = ["sh", str(real.COUNTED), str(scratch.boxes / "starts"), self.example, "demo", "--server"]
        self.pairs = ["%s=%s" % (harness.MARK, box.mark), "TWO=two words"]
        self.stdio = {"demo", self.kind.odd, "bare"}

    def run(self, *argv):
        """[standard output, standard error] of a command that succeeds; it ends within RUN_S or is killed."""
        names = [str(self.box.path / name) for name in ("stdout", "stderr")]  # no pipes: a grandchild holds them open
        with open(names[0], "w+b") as stdout, open(names[1], "w+b") as stderr:
            done = subprocess.run(argv, env=self.env, cwd=str(self.work), stdin=subprocess.DEVNULL, stdout=stdout,
                                  stderr=stderr, timeout=RUN_S)
            texts = [file.seek(0) or file.read().decode("utf-8", "replace") for file in (stdout, stderr)]
        assert done.returncode == 0, "%s: exit status %d, %s" % (argv[1:4], done.returncode, " ".join(texts)[-250:])
        return texts

    def client(self, *words):
        """What it says, without the colours; Gemini says all of it on standard error."""
        out, said = [re.sub(r"\x1b\[[0-9;]*m", "", text) for text in self.run(self.program, *words)]
        return out if out.strip() else said

    def config(self, action, *words):
        """The reports, and what was said beside them."""
        reports, said = self.run(self.relay, "config", action, "--client", self.which, *words)
        return [json.loads(line) for line in reports.splitlines()], said

    def wrap(self, *words):
        return self.config("wrap", "--env", "%s=%s" % (CACHE, self.cache), *words)

    def add(self, name, argv, pairs=()):
        scope = self.kind.scope
        pairs = [word for pair in pairs for word in ("-e" if scope else "--env", pair)]
        dashes = ["--"] if self.which == "claude" or not scope else []
        self.client("mcp", "add", *(scope + pairs + dashes + [name] if scope else [name] + pairs + dashes), *argv)

    def version(self):
        try:
            return self.client("--version").split("\n")[0]
        except (AssertionError, OSError) as error:
            raise real.NotRun("%s does not start: %s" % (self.which, error)) from None

    def furnish(self):
        """Two servers that can be connected to, one that cannot, and a remote one."""
        self.add("demo", self.demo, self.pairs)
        self.add(self.kind.odd, ["sh", "-c", 'exec "$0" demo --server', self.example] + ARGUMENTS, self.pairs[:1])
        self.add("bare", ["bare-server"])
        remote = ["--transport", "http", "web"] if "transport" in self.kind.knows else ["web", "--url"]
        self.client("mcp", "add", *self.kind.scope, *remote, NOWHERE)

    def behind(self, servers):
        """The registrations with the relay in front, as this client shows them or writes them."""
        found = dict(servers)
        for name in self.stdio & set(servers):
            old = servers[name]
            if isinstance(old, str):
                found[name] = self.relay + " " + old
            elif isinstance(old["command"], list):
                env = dict(old.get("environment") or {}, **{CACHE: self.cache})
                found[name] = dict(old, command=[self.relay] + old["command"], environment=env)
            else:
                env = dict(old.get("env") or {}, **{CACHE: self.cache})
                found[name] = dict(old, command=self.relay, args=[old["command"]] + (old.get("args") or []), env=env)
        return found

    def statuses(self):
        """{name: wrapped} of the stdio registrations, by `config status` and by `config list`; they have to agree."""
        found = {one["server"]: one["wrapped"] for one in self.config("status", "--all")[0]}
        listed = json.loads(self.run(self.relay, "config", "list", "--json", "--client", self.which)[0])
        other = {one["server"]: one["wrapped"] for one in listed if one["kind"] == "stdio" and not one["project"]}
        assert found == other, "status says %s, list %s" % (found, other)
        return found


def differing(seen, right):
    """Which registrations are not what they should be, or ""."""
    pairs = {name: (seen.get(name, "missing"), right.get(name, "none")) for name in sorted(set(seen) | set(right))}
    return "; ".join("%s: %.150s and not %.150s" % (name, *pair) for name, pair in pairs.items() if pair[0] != pair[1])


def configured(scratch, which):
    """A client's whole section."""
    with scratch.box() as (box, env):
        one = Desk(scratch, box, env, which)
        yield "info", "version", one.version()
        one.furnish()
        direct, up = one.kind.shows(one)
        yield check("its own command adds them", set(direct) ^ one.stdio ^ {"web"}, "%d servers" % len(direct))
        parts = [wrapped(one, direct, up), rewritten(one, direct), replaced(one, direct)]
        for part in parts + [scopes(one)] * (which == "claude"):
            yield from part
        yield check("nothing left", ", ".join(real.left_after(box.mark, [], real.GONE_S)))


def wrapped(one, direct, up):
    """The client reads the file with the relay in it, and connects to it, if it is one that does."""
    before, starts = one.file.read_bytes(), [one.scratch.starts()]
    reports, said = one.wrap("--all")
    yield check("wrap --all", differing({report["server"]: 1 for report in reports}, dict.fromkeys(one.stdio, 1)))
    yield check("the remote one is left alone, which is said", "'web'" not in said and said)
    after, section = one.file.read_bytes(), {".json": "mcpServers", ".jsonc": "mcp"}.get(one.file.suffix)
    if section:
        model = json.loads(before)
        model[section] = one.behind(model[section])
        yield check("nothing else in the file differs", json.loads(after) != model and after[:300])
    seen, connected = one.kind.shows(one)
    yield check("it shows the relay and the arguments", differing(seen, one.behind(direct)))
    up = up or dict.fromkeys(("demo", one.kind.odd), True)
    connected = connected or started(one, seen)
    yield check("connected as directly", differing(connected, up) or not (up["demo"] and up[one.kind.odd]) and up,
                "%d of %d" % (sum(connected.values()), len(connected)))
    starts += [one.scratch.starts() - 1]
    fault = differing(one.kind.shows(one)[1] or started(one, seen), up)
    yield check("the second time without a start", fault or starts != [one.scratch.starts() - 1] * 2 and starts)
    yield check("the relay got the variable that wrap set", not one.box.recordings(one.cache) and "no recordings")
    touched = one.file.read_bytes() != after
    one.config("unwrap", "--all")
    fault = differing(one.kind.shows(one)[0], direct) if touched else one.file.read_bytes() != before and "differs"
    yield check("unwrap --all", fault, "the client had written the file" if touched else "byte for byte")


def started(one, seen):
    """{name: it answered}, for a client whose list connects to nothing: what it shows, started as it would be."""
    found = {}
    for name in ("demo", one.kind.odd):
        argv, more = [seen[name]["command"]] + seen[name]["args"], seen[name]["env"]
        relay = real.Raw(one.scratch, one.box, argv, dict(one.env, **more))
        found[name] = "serverInfo" in relay.open({})
        relay.end()
    return found


def rewritten(one, direct):
    """The client adds a server and removes one while the others are wrapped."""
    one.wrap("--all")
    one.add("later", ["later-server", "x"])
    kept = dict(direct)
    if "remove" in one.kind.knows:
        one.client("mcp", "remove", *one.kind.scope, "bare")
        kept.pop("bare")
    right = dict({name: True for name in one.stdio if name in kept}, later=False)
    yield check("still wrapped after it rewrote the file", differing(one.statuses(), right))
    seen = one.kind.shows(one)[0]
    later = {"later": seen["later"]}
    yield check("it still shows them", differing(seen, dict(one.behind(kept), **later)))
    one.config("unwrap", "--all")
    yield check("unwrapped: the original and the new one", differing(one.kind.shows(one)[0], dict(kept, **later)))


def replaced(one, direct):
    """The client's own command writes a wrapped registration anew, with other arguments: reapply adopts it."""
    one.wrap("--server", "demo")
    if "replace" not in one.kind.knows:
        one.client("mcp", "remove", *one.kind.scope, "demo")
    one.add("demo", ["sh", "-c", 'exec "$0" demo --server', one.example, "new"], one.pairs)
    new = one.kind.shows(one)[0]
    yield check("its own command replaced it", one.relay in json.dumps(new["demo"]) and new["demo"])
    state = one.config("status", "--server", "demo")[0][0]
    yield check("status tells of it", (state["wrapped"], state.get("changed")) != (False, True) and state)
    one.config("reapply", "--server", "demo")
    seen, up = one.kind.shows(one)
    right = dict(new, demo=one.behind(new)["demo"])
    yield check("reapplied, it shows the relay and them", differing(seen, right) or up.get("demo") is False and up)
    one.config("unwrap", "--server", "demo")
    yield check("unwrapped, it shows them alone", differing(one.kind.shows(one)[0], new))


def scopes(one):
    """Claude's servers of one project: in the user's file, and in the project's own."""
    for scope, words in (("local", ["--project", str(one.work)]), ("project", ["--file", str(one.work / ".mcp.json")])):
        one.client("mcp", "add", "-s", scope, scope, "--", *one.demo)
        direct = one.client("mcp", "get", scope)
        one.config("wrap", "--all", *words)
        right = direct.replace("Command: sh\n  Args: ", "Command: %s\n  Args: sh " % one.relay)
        seen = one.client("mcp", "get", scope)
        yield check("scope %s: shown with the relay" % scope, "" if seen == right != direct else seen)
        one.config("unwrap", "--all", *words)
        yield check("scope %s: unwrapped" % scope, one.client("mcp", "get", scope) != direct and direct)
