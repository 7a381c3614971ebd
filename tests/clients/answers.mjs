// The client of the TypeScript SDK, generation 2, that answers what a server asks; for tools/acceptance_asks.py.
// It is started from a copy beside the packages, because modules are looked up from where the importing file lies.
//
//     node answers.mjs JOB        JOB is JSON: argv, env, cwd, mode, root
//
// As answers.py: it prints the revision, then for each call, [name, arguments], what came of it.
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
const tell = (said) => process.stdout.write(JSON.stringify(said) + "\n");
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
