// Speaks to Belay's tools with the official SDK, over standard input and output or over HTTP, and
// prints what it is offered and what one call says, as one line of JSON.
//
//   node client.mjs stdio PROGRAM…       node client.mjs http URL TOKEN
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [way, ...words] = process.argv.slice(2);
const transport = way === "stdio"
  ? new StdioClientTransport({ command: words[0], args: words.slice(1), env: process.env })
  : new StreamableHTTPClientTransport(new URL(words[0]), {
      requestInit: { headers: { Authorization: `Bearer ${words[1]}` } },
    });
const client = new Client({ name: "belay-test", version: "1" });
await client.connect(transport);
const { tools } = await client.listTools();
const listed = await client.callTool({ name: "list_tasks", arguments: {} });
const refused = await client.callTool({ name: "get_task", arguments: { task: "zzzz" } });
const bad = await client.callTool({ name: "get_task", arguments: { surprise: 1 } });
console.log(JSON.stringify({
  server: client.getServerVersion().name,
  tools: tools.map((tool) => tool.name),
  tasks: listed.structuredContent.tasks.length,
  refused: refused.structuredContent.code,
  bad: bad.isError,
}));
await client.close();
