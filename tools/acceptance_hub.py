"""Three real servers behind one `mcp-lazy hub`, driven by clients of other people: sections of acceptance.py.

    python3 tools/acceptance.py --only hub

The clients: that of the Python SDK in both generations (mcp1, mcp2; mcp2-auto asks for the newest protocol first), the
Inspector's command line, and Claude Code, whose own registrations are imported and replaced by the hub.
"""
import json
import os
import signal
import subprocess
import sys

from acceptance_config import Desk
from acceptance_sections import check
import harness
import real

CLIENTS = ("mcp1", "mcp2", "mcp2-auto", "inspector", "claude")
THREE = ("time", "memory", "everything")
TOOLS = ["list_servers", "list_commands", "describe_commands", "invoke_command"]
MOST_TOKENS, IDLE_MS = 700, 1500
# Connects as clients/package.py does; a line of its standard input is a call, [name, arguments], or null for the list.
DRIVER = (real.HERE / "clients" / "package.py").read_text().partition("\ndef plain")[0] + '''
async def main():
    async with connect() as (session, _):
        while True:
            line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            if not line:
                return
            wanted = json.loads(line)
            result = await (session.call_tool(*wanted) if wanted else session.list_tools())
            print(json.dumps(result.model_dump(mode="json", by_alias=True, exclude_none=True)), flush=True)

asyncio.run(main())
'''


class Place:
    """A servers.json with its recordings, in a box."""

    def __init__(self, scratch, box, env):
        self.scratch, self.box, self.env, self.path = scratch, box, env, box.path / "servers.json"
        self.options = ["--config", str(self.path), "--cache-dir", str(box.path / "recordings")]
        self.work, self.since = str(scratch.path / "work"), scratch.starts()
        self.write(THREE)

    def write(self, names):
        self.path.write_text(json.dumps({"servers": [dict(
            name=name, description=name, command=self.scratch.server(name), idleStop=IDLE_MS) for name in names]}))

    def command(self, *words):
        start = [] if os.access(str(harness.MODULE), os.X_OK) else [sys.executable]
        return start + [str(harness.MODULE), "hub"] + list(words) + self.options

    def run(self, argv, **more):
        """The JSON on the standard output of a command that succeeds."""
        done = subprocess.run(argv, env=dict(self.env, **more), cwd=self.work, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=real.SESSION_S)
        assert done.returncode == 0, (done.stdout + done.stderr).decode("utf-8", "replace")[-300:]
        return json.loads(done.stdout)

    def started(self, wanted):
        """The fault if not so many servers were started since this was asked last."""
        before, self.since = self.since, self.scratch.starts()
        return self.since - before != wanted and "%d starts" % (self.since - before)


class Driven(real.Raw):
    """A client of the Python SDK in front of a hub, or of another that is driven in the same way."""

    def __init__(self, place, which, driver=None, **more):
        sdk, _, mode = which.partition("-")
        job = {"argv": place.command(), "env": place.env, "cwd": place.work, "mode": mode or "legacy", "roots": []}
        argv = (driver or [place.scratch.python(sdk[-1]), "-c", DRIVER]) + [json.dumps(dict(job, **more))]
        super().__init__(place.scratch, place.box, argv, place.env)

    def ask(self, *wanted):
        self.send(json.dumps(wanted or None).encode() + b"\n")
        return json.loads(self.line(real.ANSWER_S) or self.stderr()[-300:])

    def tell(self, tool, **arguments):
        return json.loads(self.ask(tool, arguments)["content"][0]["text"])

    def invoke(self, name):
        call = dict(server=name, command_name=real.SERVERS[name].tool, parameters=real.SERVERS[name].arguments)
        result = self.ask("invoke_command", call)
        return [] if result.get("isError") else result["content"]

    def states(self):
        return {row["name"]: row["state"] for row in self.tell("list_servers")["servers"]}


def directly(scratch, name):
    """(names of the tools of a server, content of a call) without a hub."""
    found = real.raw(scratch, name, scratch.server(name)).answers
    pages, content = [page["result"]["tools"] for page in found["tools/list"]], found["tools/call"]["result"]["content"]
    return [tool["name"] for tools in pages for tool in tools], content


def behind_a_hub(scratch, which):
    """A whole section."""
    right = {name: directly(scratch, name) for name in THREE} if which[:3] == "mcp" else {}
    with scratch.box() as (box, env):
        place = Place(scratch, box, env)
        if right:
            yield from session(place, Driven(place, which), right)
            yield from checked_session(place, which)
        else:
            yield from (inspected if which == "inspector" else claude)(place)
        yield check("nothing left", ", ".join(real.left_after(box.mark, [], real.GONE_S)))


def four(tools):
    size = len(json.dumps(tools)) // 4
    right = [tool["name"] for tool in tools["tools"]] == TOOLS and size <= MOST_TOKENS
    return check("the four tools", "" if right else tools, "about %d tokens" % size)


def session(place, client, right):
    """Discovery, a call of each server, an idle stop and a call again, a reload, the end."""
    yield four(client.ask())
    states = client.states()
    yield check("all of them asleep", states != dict.fromkeys(THREE, "asleep") and states or place.started(0))
    listed = client.tell("list_commands", servers=THREE)
    names = {name: [row["name"] for row in listed[name]] for name in THREE}
    yield check("discovery finds what each has", names != {name: right[name][0] for name in THREE} and names)
    yield check("each was started once", place.started(len(THREE)))
    for name in THREE:
        shown = client.tell("describe_commands", server=name, command_names=[real.SERVERS[name].tool])
        fault, content = shown[0]["inputSchema"].get("type") != "object" and shown, client.invoke(name)
        yield check("%s: described, and called as directly" % name, fault or content != right[name][1] and content)
    place.started(None)
    harness.until(lambda: set(client.states().values()) == {"asleep"}, real.ANSWER_S, "the idle stop of all")
    below = [words for words in real.below(place.box.mark).values() if any(name in words for name in THREE)]
    yield check("idle, they are stopped", ", ".join(below))
    yield check("and called again", client.invoke("memory") != right["memory"][1] or place.started(1))
    client.invoke("time")
    place.write(("time", "everything", "filesystem"))
    place.started(None)
    os.kill(client.tell("list_servers")["pid"], signal.SIGHUP)
    harness.until(lambda: "memory" not in client.states(), real.ANSWER_S, "the reload")
    yield check("reload: the removed one is unknown", client.invoke("memory"))
    yield check("reload: the new one is called", str(place.scratch.path) not in json.dumps(client.invoke("filesystem")))
    yield check("reload: the others go on", client.invoke("time") != right["time"][1] or place.started(1))
    client.end()


def checked_session(place, which):
    """`hub check` records what they have; in the session behind it discovery starts none."""
    place.write(THREE)
    rows = place.run(place.command("check", "--json"))
    yield check("hub check", [row["state"] for row in rows] != ["ok"] * 3 and rows, ", ".join(
        "%(server)s %(commands)d in %(ms)d ms" % row for row in rows))
    client, _ = Driven(place, which), place.started(None)
    counts = list(map(len, client.tell("list_commands", servers=THREE).values()))
    yield check("discovery starts none", counts != [row["commands"] for row in rows] and counts or place.started(0))
    client.end()


def inspected(place):
    """The Inspector's command line: a hub for each method, so what one recorded serves the next."""
    program = place.scratch.npm("inspector", "@modelcontextprotocol/inspector@latest") / "mcp-inspector"
    argv, config = place.command(), place.box.path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"it": {"command": argv[0], "args": argv[1:], "env": place.env}}}))

    def ask(*words):
        return place.run([str(program), "--cli", "--config", str(config), "--server", "it", "--method"] + list(words),
                         HOME=str(place.box.home), MCP_INSPECTOR_SECRET_STORE="memory", **{harness.MARK: "client"})

    yield four(ask("tools/list"))
    for name in THREE:
        tool, call, _ = real.SERVERS[name].tool, ["tools/call", "--tool-name"], place.started(None)
        for times in (1, 0):
            said = json.dumps(ask(*call, "list_commands", "--tool-arg", "server=" + name))
            yield check("%s: discovery, starts: %d" % (name, times), tool not in said and said or place.started(times))
        said = ask(*call, "invoke_command", "--tool-arg", "server=" + name, "command_name=" + tool,
                   "parameters=" + json.dumps(real.SERVERS[name].arguments))
        yield check("%s: a call" % name, said.get("isError") and said or place.started(1))


def claude(place):
    """Its registrations are imported, taken out as the import says, and replaced by the hub, which it connects to."""
    one, mark = Desk(place.scratch, place.box, place.env, "claude"), "%s=%s" % (harness.MARK, place.box.mark)
    for name in THREE:
        one.add(name, place.scratch.server(name), [mark, "MEMORY_FILE_PATH=" + place.env["MEMORY_FILE_PATH"]])
    one.client("mcp", "add", "-s", "user", "--transport", "sse", "old", "http://127.0.0.1:9")
    place.path.write_text('{"servers": []}')
    words = [one.relay, "hub", "import", "--client", "claude", "--json", "--merge", "--output", str(place.path)]
    report = place.run(words, **one.env)
    yield check("hub import", sorted(report["servers"]) != sorted(THREE) and report, one.version())
    for line in report["instead"].splitlines():
        if line.startswith("  claude "):
            one.client(*line.split()[1:])
    hub = json.loads(report["instead"].split("\n\n")[1])["mcpServers"]["hub"]
    one.add("hub", [hub["command"]] + hub["args"], [mark, "MCP_LAZY_CACHE_DIR=" + one.cache])
    place.started(None)
    shown, connected = one.kind.shows(one)
    yield check("it has the hub, and what was left out", set(shown) != {"hub", "old"} and shown)
    yield check("connected, without a start", connected.get("hub") is not True and connected or place.started(0))
    place.run(place.command("check", "--json"))
    yield check("hub check of what was imported", place.started(len(THREE)))
