"""What servers ask, through `mcp-lazy hub`: a section of acceptance.py.

    python3 tools/acceptance.py --only hub:asks

The clients answer elicitation, sampling and roots by callbacks of their SDKs: Python in both generations and TypeScript
(mcp2-auto and ts2-auto speak 2026-07-28 to the hub, mcp1 the older protocol). Behind the hub stand server-filesystem
without a directory, server-everything, and servers on the SDKs: those of the older protocol ask by requests of their
own, those that refuse it (modern2, modernts) by results that want input. What a question says is how it is answered.
"""
import json

from acceptance_hub import IDLE_MS, Driven, Place
from acceptance_sections import check
import harness
import real

CLIENTS = ("mcp2-auto", "mcp1", "ts2-auto")
MODERN = "2026-07-28"
ROOT = "root-a"

# ---------------------------------------------------------------------------- the clients
# As DRIVER of acceptance_hub.py; its first line tells the revision, every answer has what it was asked meanwhile.

PYTHON_CLIENT = '''
import asyncio, contextlib, json, sys
import mcp

job, heard, asked = json.loads(sys.argv[1]), [], []

def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)

async def elicit(_, params):
    asked.append(plain(params))
    heard.append("elicit " + params.message)
    action, _, name = params.message.partition(" ")
    if action in ("decline", "cancel"):
        return mcp.types.ElicitResult(action=action)
    return mcp.types.ElicitResult(action="accept", content={"name": name})

async def sample(_, params):
    asked.append(plain(params))
    heard.append("sample " + plain(params)["messages"][0]["content"]["text"])
    said = mcp.types.TextContent(type="text", text="said")
    return mcp.types.CreateMessageResult(role="assistant", model="none", content=said)

async def roots(*_):
    heard.append("roots")
    return mcp.types.ListRootsResult(roots=[{"uri": "file://" + job["root"], "name": "here"}])

async def progress(done, *_):
    heard.append("progress %d" % done)

@contextlib.asynccontextmanager
async def connect():
    server = mcp.StdioServerParameters(command=job["argv"][0], args=job["argv"][1:], env=job["env"], cwd=job["cwd"])
    options = dict(elicitation_callback=elicit, sampling_callback=sample, list_roots_callback=roots)
    if hasattr(mcp, "Client"):
        async with mcp.Client(server, mode=job["mode"], **options) as client:
            yield client, client.protocol_version
    else:
        async with mcp.stdio_client(server) as pipes, mcp.ClientSession(*pipes, **options) as session:
            yield session, (await session.initialize()).protocolVersion

async def main():
    async with connect() as (client, version):
        print(json.dumps(version), flush=True)
        while True:
            line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            if not line:
                return
            heard.clear(), asked.clear()
            try:
                result = plain(await client.call_tool(*json.loads(line), progress_callback=progress))
            except Exception as error:
                result = {"error": repr(error)}
            print(json.dumps(dict(result, heard=heard, asked=asked)), flush=True)

asyncio.run(main())
'''

SCRIPT_CLIENT = '''
import readline from "node:readline";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const job = JSON.parse(process.argv[2]);
let heard = [], asked = [];
const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} };
const client = new Client({ name: "asks", version: "1" }, { capabilities, versionNegotiation: { mode: job.mode } });
client.setRequestHandler("elicitation/create", async ({ params }) => {
  asked.push(params);
  heard.push("elicit " + params.message);
  const [action, ...name] = params.message.split(" ");
  if (["decline", "cancel"].includes(action)) return { action };
  return { action: "accept", content: { name: name.join(" ") } };
});
client.setRequestHandler("sampling/createMessage", async ({ params }) => {
  asked.push(params);
  heard.push("sample " + params.messages[0].content.text);
  return { role: "assistant", model: "none", content: { type: "text", text: "said" } };
});
client.setRequestHandler("roots/list", async () => {
  heard.push("roots");
  return { roots: [{ uri: "file://" + job.root, name: "here" }] };
});
const [command, ...args] = job.argv;
await client.connect(new StdioClientTransport({ command, args, env: job.env, cwd: job.cwd }));
const tell = (said) => process.stdout.write(JSON.stringify(said) + "\\n");
tell(client.getNegotiatedProtocolVersion());
for await (const line of readline.createInterface({ input: process.stdin })) {
  const [name, given] = JSON.parse(line);
  [heard, asked] = [[], []];
  // The SDK itself tells of each round, without a total.
  const onprogress = ({ progress, total }) => total && heard.push("progress " + progress);
  const result = await client.callTool({ name, arguments: given }, { onprogress })
    .catch((error) => ({ error: String(error) }));
  tell({ ...result, heard, asked });
}
await client.close();
process.exit(0);
'''

# ---------------------------------------------------------------------------- the servers

# On the `mcp` package of both generations. With "modern" the second refuses the handshake, on the same connection.
PYTHON_SERVER = '''
import sys
import anyio
from pydantic import BaseModel
from mcp import types
try:
    from mcp.server.mcpserver import Context, MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP as Server

class Answer(BaseModel):
    name: str

server = Server("asks")
REST_S = 0.1  # the client of the TypeScript SDK loses progress that it reads together with the result
MESSAGE = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="say"))

def told(found):
    return found.action + (" " + found.data.name if found.action == "accept" else "")

@server.tool()
async def ask(messages: list[str], ctx: Context) -> str:
    return ", ".join([told(await ctx.elicit(message, Answer)) for message in messages])

@server.tool()
async def at_once(messages: list[str], ctx: Context) -> str:
    found = {}
    async def one(message):
        found[message] = told(await ctx.elicit(message, Answer))
    async with anyio.create_task_group() as group:
        for message in messages:
            group.start_soon(one, message)
    return ", ".join(found[message] for message in messages)

@server.tool()
async def needs(ctx: Context) -> str:
    said = await ctx.session.create_message([MESSAGE], max_tokens=9)
    return "%s, %s" % (said.content.text, (await ctx.session.list_roots()).roots[0].uri)

@server.tool()
async def slow(message: str, ctx: Context) -> str:
    await ctx.report_progress(1, 3)
    await anyio.sleep(REST_S)
    said = told(await ctx.elicit(message, Answer))
    await ctx.report_progress(2, 3)
    await anyio.sleep(REST_S)
    return said

if Server.__name__ == "MCPServer":
    from typing import Annotated
    from mcp.server import runner
    from mcp.server.mcpserver import Elicit, ElicitationResult, ListRoots, Resolve, Sample

    async def first(message: str, ctx: Context):
        if ctx.request_state is None:  # a later round asks the same
            await ctx.report_progress(1, 3)
            await anyio.sleep(REST_S)
        return Elicit(message, Answer)

    def second(answer: Annotated[Answer, Resolve(first)]):
        return Elicit("accept after " + answer.name, Answer)

    def model():
        return Sample([MESSAGE], max_tokens=9)

    def places():
        return ListRoots()

    @server.tool()
    async def resolved(message: str, ctx: Context, answer: Annotated[ElicitationResult[Answer], Resolve(first)]) -> str:
        await ctx.report_progress(2, 3)
        await anyio.sleep(REST_S)
        return told(answer)

    @server.tool()
    async def chain(message: str, answer: Annotated[Answer, Resolve(second)]) -> str:
        return answer.name

    @server.tool()
    async def together(message: str, answer: Annotated[Answer, Resolve(first)],
                       said: Annotated[types.CreateMessageResult, Resolve(model)],
                       roots: Annotated[types.ListRootsResult, Resolve(places)]) -> str:
        return "%s, %s, %s" % (answer.name, said.content.text, roots.roots[0].uri)

    # The SDK has no option for it; its own loop for this revision says what it says to a handshake that comes late.
    def modern(server, reader, writer, session_id, init_options, **more):
        return runner._serve_modern_stream(server, reader, writer, **more)
    if sys.argv[1:] == ["modern"]:
        runner._serve_legacy_stream = modern

server.run("stdio")
'''

# On the TypeScript SDK; `reject` lets it refuse the handshake, with `serve` the SDK asks older clients by requests.
SCRIPT_SERVER = '''
import { Server, inputRequired } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const NAME = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const elicit = (message) => inputRequired.elicit({ message, requestedSchema: NAME });
const told = ({ action, content }) => action === "accept" ? `accept ${content.name}` : action;
const MESSAGE = { role: "user", content: { type: "text", text: "say" } };

const TOOLS = {
  at_once({ messages }, { inputResponses: found }) {  // no state
    const keys = messages.map((_, place) => `question ${place}`);
    if (found) return keys.map((key) => told(found[key])).join(", ");
    return inputRequired({ inputRequests: Object.fromEntries(keys.map((key, at) => [key, elicit(messages[at])])) });
  },
  ask({ messages }, { inputResponses: found, requestState }) {  // one a round; the state holds what was said
    const said = [...JSON.parse(requestState() ?? "[]"), ...(found ? [told(found.it)] : [])];
    if (said.length === messages.length) return said.join(", ");
    return inputRequired({ inputRequests: { it: elicit(messages[said.length]) }, requestState: JSON.stringify(said) });
  },
  needs(_, { inputResponses: found }) {
    if (found) return `${found.model.content.text}, ${found.places.roots[0].uri}`;
    const model = inputRequired.createMessage({ messages: [MESSAGE], maxTokens: 9 });
    return inputRequired({ inputRequests: { model, places: inputRequired.listRoots() } });
  },
  async slow({ message }, { inputResponses: found, notify, _meta }) {
    const params = { progressToken: _meta?.progressToken, progress: found ? 2 : 1, total: 3 };
    if (_meta?.progressToken !== undefined) await notify({ method: "notifications/progress", params });
    await new Promise((resolve) => setTimeout(resolve, 100));  // so that the progress comes by itself
    return found ? told(found.it) : inputRequired({ inputRequests: { it: elicit(message) }, requestState: "s" });
  },
};

serveStdio(() => {
  const server = new Server({ name: "asks", version: "1" }, { capabilities: { tools: {} } });
  const inputSchema = { type: "object" };
  server.setRequestHandler("tools/list", async () => (
    { tools: Object.keys(TOOLS).map((name) => ({ name, inputSchema })) }));
  server.setRequestHandler("tools/call", async ({ params }, { mcpReq }) => {
    const found = await TOOLS[params.name](params.arguments ?? {}, mcpReq);
    return typeof found === "string" ? { content: [{ type: "text", text: found }] } : found;
  });
  return server;
}, { legacy: process.argv[2] });
'''


def script(scratch, name, text):
    """[node, script], where its imports find what they name."""
    for package in ("client", "server"):
        scratch.npm("ts2", "@modelcontextprotocol/" + package)
    path = scratch.path / "ts2" / name
    path.write_text(text)
    return ["node", str(path)]


def servers(scratch):
    """{name: argv}"""
    server = script(scratch, "asks_server.mjs", SCRIPT_SERVER)
    found = {"asks" + which: [scratch.python(which), "-c", PYTHON_SERVER] for which in "12"}
    found.update(modern2=found["asks2"] + ["modern"], asksts=server + ["serve"], modernts=server + ["reject"])
    found.update((name, scratch.command(name)[:1]) for name in ("filesystem", "everything"))  # without a directory
    return found


class Asked(Driven):
    """A client that can be asked, in front of the hub, or of a server with `argv`."""

    def __init__(self, place, which, **more):
        driver = script(place.scratch, "asks_client.mjs", SCRIPT_CLIENT) if which[:2] == "ts" else [
            place.scratch.python(which[3]), "-c", PYTHON_CLIENT]
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
