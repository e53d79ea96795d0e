//! MCP over HTTP, as much as shows whether an agent reached the server it was pointed at: two tools
//! of Belay's names, whose answer is fixed. Calls are seen in the server's list of requests.

use std::io;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::http::{self, Incoming};

/// What the tools answer.
const ANSWER: &str = "The person says: blue.";

pub(crate) fn answer(stream: &TcpStream, incoming: &Incoming, body: &Value) -> io::Result<()> {
    if incoming.method != "POST" {
        return reply(stream, incoming, 405, "{}");
    }
    let Some(id) = body.get("id") else {
        return reply(stream, incoming, 202, "");
    };
    let result = match body["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": body["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "belay", "version": "0"},
        }),
        "tools/list" => json!({"tools": [
            tool("ask_user", "Ask the person who gave you this task."),
            tool("report_progress", "Say how far you are."),
        ]}),
        "tools/call" => json!({"content": [{"type": "text", "text": ANSWER}], "isError": false}),
        "ping" => json!({}),
        method => {
            let error = json!({"code": -32601, "message": format!("no method {method}")});
            let said = json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string();
            return reply(stream, incoming, 200, &said);
        }
    };
    let said = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    reply(stream, incoming, 200, &said)
}

fn reply(stream: &TcpStream, incoming: &Incoming, status: u16, body: &str) -> io::Result<()> {
    let respond = if incoming.stays() { http::respond_and_stay } else { http::respond };
    respond(stream, status, &[], "application/json", body.as_bytes())
}

fn tool(name: &str, description: &str) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
    })
}
