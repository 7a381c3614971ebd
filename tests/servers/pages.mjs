// A server on the TypeScript SDK, generation 1 or 2, whose tools and resources come in pages; for tools/acceptance.py.
// It is started from a copy beside the packages, because modules are looked up from where the importing file lies.
//     node pages.mjs 1|2

const ECHO = { type: "object", properties: { message: { type: "string" } } };
const TOOLS = ["echo", "two", "three", "four", "five"]
  .map((name) => ({ name, description: `Tool ${name}`, inputSchema: ECHO }));
const RESOURCES = [0, 1, 2].map((number) => ({ uri: `page://${number}`, name: `page ${number}` }));
const PROMPTS = [{ name: "hello", description: "A prompt" }];
const SIZE = 2;

const INFO = { name: "pages", version: "1" };
const CAPABILITIES = { tools: { listChanged: true }, resources: { listChanged: true }, prompts: { listChanged: true } };

// Two items from where the cursor says, and the next cursor unless these are the last.
function page(member, items) {
  return async (request) => {
    const start = Number(request.params?.cursor ?? 0);
    const more = start + SIZE < items.length ? { nextCursor: String(start + SIZE) } : {};
    return { [member]: items.slice(start, start + SIZE), ...more };
  };
}

const HANDLERS = {
  "tools/list": page("tools", TOOLS),
  "resources/list": page("resources", RESOURCES),
  "resources/templates/list": page("resourceTemplates", []),
  "prompts/list": page("prompts", PROMPTS),
  "tools/call": async (request) => (
    { content: [{ type: "text", text: `echo: ${request.params.arguments?.message}` }] }),
};

async function firstGeneration() {
  const { Server } = await import("@modelcontextprotocol/sdk/server/index.js");
  const { StdioServerTransport } = await import("@modelcontextprotocol/sdk/server/stdio.js");
  const types = await import("@modelcontextprotocol/sdk/types.js");
  const schemas = {
    "tools/list": types.ListToolsRequestSchema,
    "resources/list": types.ListResourcesRequestSchema,
    "resources/templates/list": types.ListResourceTemplatesRequestSchema,
    "prompts/list": types.ListPromptsRequestSchema,
    "tools/call": types.CallToolRequestSchema,
  };
  const server = new Server(INFO, { capabilities: CAPABILITIES });
  for (const [method, handler] of Object.entries(HANDLERS)) server.setRequestHandler(schemas[method], handler);
  await server.connect(new StdioServerTransport());
}

async function secondGeneration() {
  const { Server } = await import("@modelcontextprotocol/server");
  const { serveStdio } = await import("@modelcontextprotocol/server/stdio");
  serveStdio(() => {
    const server = new Server(INFO, { capabilities: CAPABILITIES });
    for (const [method, handler] of Object.entries(HANDLERS)) server.setRequestHandler(method, handler);
    return server;
  });
}

await (process.argv[2] === "1" ? firstGeneration() : secondGeneration());
