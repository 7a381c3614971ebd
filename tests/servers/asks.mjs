// A server on the TypeScript SDK, generation 2, whose tools ask the client; for tools/acceptance_asks.py.
// It is started from a copy beside the packages, because modules are looked up from where the importing file lies.
//
//     node asks.mjs serve|reject
//
// `reject`: it refuses the handshake of the older protocol; with `serve` the SDK asks older clients by requests.
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
