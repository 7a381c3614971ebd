"""A server on the `mcp` package, generation 1 or 2, whose tools ask the client; for tools/acceptance_asks.py.

    python asks.py [modern]

With `modern` generation 2 refuses the handshake of the older protocol. What a question says is how it is answered, see
clients/answers.py. The tools ask by requests of their own; `resolved`, `chain` and `together`, which only generation 2
has, by results that want input where the client is a newer one.
"""
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

    # The SDK has no option to refuse the handshake; its own loop for the newer revision refuses it, as a late one.
    def modern(server, reader, writer, session_id, init_options, **more):
        return runner._serve_modern_stream(server, reader, writer, **more)

    if sys.argv[1:] == ["modern"]:
        runner._serve_legacy_stream = modern

server.run("stdio")
