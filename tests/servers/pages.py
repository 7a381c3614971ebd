"""A server on the `mcp` package, generation 1 or 2, whose tools and resources come in pages; for tools/acceptance.py.

It has resources but no handler for their templates, as many real ones: both generations then answer that list with
-32601 although the capability is there.
"""
import asyncio

import mcp.server.stdio
from mcp import types
from mcp.server.lowlevel import Server

SIZE = 2  # items of a page
INPUT = {"type": "object", "properties": {"message": {"type": "string"}}}
TOOLS = [{"name": name, "description": "Tool " + name, "inputSchema": INPUT}
         for name in ("echo", "two", "three", "four", "five")]
RESOURCES = [{"uri": "page://%d" % number, "name": "page %d" % number} for number in range(3)]
PROMPTS = [{"name": "hello", "description": "A prompt"}]


def page(kind, member, items):
    """A function from a list's params to the page that its cursor names."""
    def answer(params):
        start = int(params and params.cursor or 0)
        found = {member: items[start:start + SIZE]}
        if start + SIZE < len(items):
            found["nextCursor"] = str(start + SIZE)
        return kind.model_validate(found)
    return answer


def call(params):
    said = "echo: %s" % (params.arguments or {}).get("message")
    return types.CallToolResult(content=[types.TextContent(type="text", text=said)])


tools = page(types.ListToolsResult, "tools", TOOLS)
resources = page(types.ListResourcesResult, "resources", RESOURCES)
prompts = page(types.ListPromptsResult, "prompts", PROMPTS)


def first_generation():
    def handler(answer):
        async def handle(request):
            return types.ServerResult(answer(request.params))
        return handle
    server = Server("pages", version="1")
    for kind, answer in ((types.ListToolsRequest, tools), (types.ListResourcesRequest, resources),
                         (types.ListPromptsRequest, prompts), (types.CallToolRequest, call)):
        server.request_handlers[kind] = handler(answer)
    return server


def second_generation():
    from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

    def handler(answer):
        async def handle(_, params):
            return answer(params)
        return handle
    return Server("pages", version="1", on_list_tools=handler(tools), on_list_resources=handler(resources),
                  on_list_prompts=handler(prompts), on_call_tool=handler(call),
                  on_subscriptions_listen=ListenHandler(InMemorySubscriptionBus()))


async def main():
    server = first_generation() if hasattr(Server, "list_tools") else second_generation()
    async with mcp.server.stdio.stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


asyncio.run(main())
