"""A session by the client of the `mcp` package, generation 1 or 2; run by an interpreter that has it.

    python package.py JOB        JOB is JSON: argv, env, cwd, mode, roots, tool, arguments

Connects, asks all four listings with all their pages, calls the tool. Before the call and before its end it prints a
line and stops until it gets one, so that somebody can look at the processes; the second line holds the answers.
"""
import asyncio
import contextlib
import json
import sys

import mcp

job = json.loads(sys.argv[1])


async def roots(*_):
    return mcp.types.ListRootsResult(roots=[{"uri": uri} for uri in job["roots"]])


@contextlib.asynccontextmanager
async def connect():
    server = mcp.StdioServerParameters(command=job["argv"][0], args=job["argv"][1:], env=job["env"], cwd=job["cwd"])
    options = {"list_roots_callback": roots} if job["roots"] else {}
    if hasattr(mcp, "Client"):
        async with mcp.Client(server, mode=job["mode"], **options) as client:
            yield client.session, client.session.initialize_result or client.session.discover_result
    else:
        async with mcp.stdio_client(server) as pipes, mcp.ClientSession(*pipes, **options) as session:
            yield session, await session.initialize()


def plain(result):
    return {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}


async def answer(request):
    try:
        return plain(await request)
    except Exception as error:
        error = getattr(error, "error", error)
        return {"error": [getattr(error, "code", None), getattr(error, "message", str(error))]}


async def pages(ask):
    found = [await answer(ask())]
    while found[-1].get("result", {}).get("nextCursor") is not None:
        cursor = found[-1]["result"]["nextCursor"]
        found.append(await answer(ask(params=mcp.types.PaginatedRequestParams(cursor=cursor))))
    return found


def stop_until_told(**told):
    print(json.dumps(told), flush=True)
    sys.stdin.readline()


async def main():
    async with connect() as (session, hello):
        answers = {"initialize": plain(hello), "tools/list": await pages(session.list_tools),
                   "resources/list": await pages(session.list_resources),
                   "resources/templates/list": await pages(session.list_resource_templates),
                   "prompts/list": await pages(session.list_prompts)}
        stop_until_told()
        answers["tools/call"] = await answer(session.call_tool(job["tool"], job["arguments"]))
        stop_until_told(answers=answers)


asyncio.run(main())
