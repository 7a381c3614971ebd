"""What servers ask, through `mcp-lazy hub`: a section of acceptance.py.

    python3 tools/acceptance.py --only hub:asks

The clients answer elicitation, sampling and roots by callbacks of their SDKs: Python in both generations and TypeScript
(mcp2-auto and ts2-auto speak 2026-07-28 to the hub, mcp1 the older protocol). Behind the hub stand server-filesystem
without a directory, server-everything, and servers on the SDKs: those of the older protocol ask by requests of their
own, those that refuse it (modern2, modernts) by results that want input. See tests/clients/answers.* and
tests/servers/asks.*; what a question says is how it is answered.
"""
import json

from acceptance_hub import IDLE_MS, Driven, Place
from acceptance_sections import check
import harness
import real

CLIENTS = ("mcp2-auto", "mcp1", "ts2-auto")
MODERN = "2026-07-28"
ROOT = "root-a"


def node(scratch, side, script):
    return scratch.node("2", "@modelcontextprotocol/" + side, script)


def servers(scratch):
    """{name: argv}"""
    server = node(scratch, "server", "servers/asks.mjs")
    found = {"asks" + which: [scratch.python(which), str(real.HERE / "servers" / "asks.py")] for which in "12"}
    found.update(modern2=found["asks2"] + ["modern"], asksts=server + ["serve"], modernts=server + ["reject"])
    found.update((name, scratch.command(name)[:1]) for name in ("filesystem", "everything"))  # without a directory
    return found


class Asked(Driven):
    """A client that can be asked, in front of the hub, or of a server with `argv`."""

    def __init__(self, place, which, **more):
        driver = node(place.scratch, "client", "clients/answers.mjs") if which[:2] == "ts" else [
            place.scratch.python(which[3]), str(real.HERE / "clients" / "answers.py")]
        self.root = str(place.scratch.path / ROOT)
        super().__init__(place, which, driver, root=self.root, **more)
        self.version = json.loads(self.line(real.ANSWER_S) or json.dumps(self.stderr()[-300:]))

    def invoke(self, server, command, **parameters):
        return self.ask("invoke_command", dict(server=server, command_name=command, parameters=parameters))


# ---------------------------------------------------------------------------- the section

A, B = "accept Ada", "accept Bob"
LISTS = [("ask", [one], one) for one in (A, "decline", "cancel")] + [
    ("ask", [A, "decline", B], A + ", decline, " + B), ("at_once", [A, B], A + ", " + B)]
# (command, parameters, text of the result, what the client hears; "..." is where its root is)
PLAIN = [(command, {"messages": messages}, said, ["elicit " + message for message in messages])
         for command, messages, said in LISTS]
PLAIN += [("needs", {}, "said, ...", ["sample say", "roots"]),
          ("slow", {"message": A}, A, ["progress 1", "elicit " + A, "progress 2"])]
RESOLVED = [("resolved", {"message": one}, one, ["progress 1", "elicit " + one, "progress 2"])
            for one in (A, "decline", "cancel")]
RESOLVED += [("together", {"message": A}, "Ada, said, ...", ["progress 1", "elicit " + A, "sample say", "roots"]),
             ("chain", {"message": A}, "after Ada", ["progress 1", "elicit " + A, "elicit accept after Ada"])]
CALLS = {"asks1": PLAIN, "asks2": PLAIN + RESOLVED, "asksts": PLAIN, "modernts": PLAIN, "modern2": RESOLVED}


def text(result):
    return "\n".join(part.get("text", "") for part in result.get("content", []))


def asks(scratch, _):
    """The whole section: a hub of its own for each client, so that each finds all of them cold."""
    behind = servers(scratch)
    for which in CLIENTS:
        with scratch.box() as (box, env):
            place = Place(scratch, box, env)
            place.path.write_text(json.dumps({"servers": [
                dict(name=name, description=name, command=argv, idleStop=IDLE_MS) for name, argv in behind.items()]}))
            client = Asked(place, which)
            fault = (client.version == MODERN) is not which.endswith("-auto") and client.version
            yield check(which + ": the revision", fault, client.version)
            for verdict, what, detail in list(rooted(client)) + list(everything(place, client, which, behind)):
                yield verdict, "%s: %s" % (which, what), detail
            for name, calls in CALLS.items():
                for call in calls:
                    yield called(client, which, name, *call)
            yield check(which + ": the next hub lists all, asleep", listed_again(place, client, which, sorted(behind)))
            yield check(which + ": nothing left", ", ".join(real.left_after(box.mark, [], real.GONE_S)))


def rooted(client):
    """server-filesystem asks for the roots behind its handshake; its first call has to know them, each time."""
    for when in ("cold", "after an idle stop"):
        found = client.invoke("filesystem", "list_allowed_directories")
        yield check("filesystem, " + when, client.root not in text(found) and found)
        harness.until(lambda: client.states()["filesystem"] == "asleep", real.ANSWER_S, "the idle stop")


def everything(place, client, which, behind):
    """server-everything has tools for what its client can do; its own question of 13 fields comes as it asked it."""
    names = [row["name"] for row in client.tell("list_commands", server="everything")]
    wanted = {"trigger-elicitation-request", "trigger-sampling-request", "get-roots-list"}
    yield check("everything has what depends on the client", wanted - set(names))
    direct = Asked(place, which.partition("-")[0], argv=behind["everything"])
    for name, given in (("trigger-elicitation-request", {}), ("trigger-sampling-request", {"prompt": "say"}),
                        ("get-roots-list", {})):
        right, found = direct.ask(name, given), client.invoke("everything", name, **given)
        same = [(one.get("content"), one["asked"]) for one in (right, found)]
        yield check("everything: %s as directly" % name, same[0] != same[1] and found, text(found)[:40].split("\n")[0])
    direct.end()


def listed_again(place, client, which, names):
    """The fault if another hub, on what this one recorded, lists other commands or starts a server for them."""
    listed = client.tell("list_commands", servers=names)
    client.end()
    client = Asked(place, which)
    again, states = client.tell("list_commands", servers=names), client.states()
    client.end()
    return again != listed and again or set(states.values()) != {"asleep"} and states


def called(client, which, server, command, parameters, said, heard):
    result = client.invoke(server, command, **parameters)
    got, right = [text(result), result["heard"]], [said.replace("...", "file://" + client.root), heard]
    if command in ("at_once", "needs", "together"):  # in whatever order
        got[1], right[1] = sorted(got[1]), sorted(right[1])
    return check("%s: %s: %s %s" % (which, server, command, " ".join(parameters.get("messages", []))),
                 got != right and (result.get("error") or result), ", ".join(heard))
