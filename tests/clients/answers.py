"""The client of the `mcp` package, generation 1 or 2, that answers what a server asks; for tools/acceptance_asks.py.

    python answers.py JOB        JOB is JSON: argv, env, cwd, mode, root

Connects and prints the revision. Each line of its standard input is a call, [name, arguments]; the line that it prints
for it is the result with `heard`, what came meanwhile in its order, and `asked`, the params of the questions.
The message of an elicitation says how it is answered: "decline", "cancel", or "accept NAME".
"""
import asyncio
import contextlib
import json
import sys

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
