// A session by the client of the TypeScript SDK, generation 1 or 2; started from a copy beside the packages.
//
//     node package.mjs JOB        JOB is JSON: argv, env, cwd, mode, tool, arguments
//
// As package.py: connects, asks all four listings, calls the tool. Before the call and before its end it prints a line
// and stops until it gets one. Generation 2 collects the pages of a list by itself; generation 1 is led through them.
import readline from "node:readline";

const job = JSON.parse(process.argv[2]);
console.debug = console.error;  // what generation 2 has to say about a list that it does not ask for
const INFO = { name: "package", version: "1" };
const LISTS = {
  "tools/list": "listTools",
  "resources/list": "listResources",
  "resources/templates/list": "listResourceTemplates",
  "prompts/list": "listPrompts",
};

async function modules() {
  if (job.mode === "first") {
    return [await import("@modelcontextprotocol/sdk/client/index.js"),
      await import("@modelcontextprotocol/sdk/client/stdio.js")];
  }
  return [await import("@modelcontextprotocol/client"), await import("@modelcontextprotocol/client/stdio")];
}

async function answer(request) {
  try {
    return { result: await request };
  } catch (error) {
    return { error: [error.code, error.message] };
  }
}

async function pages(client, method) {
  const ask = (params) => answer(client[LISTS[method]](params));
  if (job.mode !== "first") return [await ask()];
  const found = [await ask()];
  const next = () => found.at(-1).result?.nextCursor;
  while (next() !== undefined) found.push(await ask({ cursor: next() }));
  return found;
}

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function stopUntilTold(told) {
  process.stdout.write(JSON.stringify(told) + "\n");
  await lines.next();
}

const [{ Client }, { StdioClientTransport }] = await modules();
const OPTIONS = {
  first: {},
  legacy: {},
  auto: { versionNegotiation: { mode: "auto" } },
  listen: { versionNegotiation: { mode: "auto" }, listChanged: { tools: { autoRefresh: false, onChanged: () => {} } } },
};
const client = new Client(INFO, OPTIONS[job.mode]);
const [command, ...args] = job.argv;
await client.connect(new StdioClientTransport({ command, args, env: job.env, cwd: job.cwd }));

const answers = {
  initialize: [client.getServerVersion(), client.getServerCapabilities(), client.getInstructions(),
    client.getDiscoverResult?.(), client.getNegotiatedProtocolVersion?.()].map((part) => part ?? null),
};
for (const method of Object.keys(LISTS)) answers[method] = await pages(client, method);
await stopUntilTold({});
answers["tools/call"] = await answer(client.callTool({ name: job.tool, arguments: job.arguments }));
await stopUntilTold({ answers });
await client.close();
process.exit(0);
