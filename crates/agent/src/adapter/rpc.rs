//! JSON-RPC over lines, as Codex's app server and ACP speak it.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::field::{Num, Part, Str, raw};

/// A message from the agent.
#[derive(Deserialize)]
pub(crate) struct Message<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Part<'a>,
    #[serde(borrow, default)]
    pub(crate) method: Str<'a>,
    #[serde(borrow, default)]
    pub(crate) params: Part<'a>,
    #[serde(borrow, default)]
    pub(crate) result: Part<'a>,
    #[serde(borrow, default)]
    pub(crate) error: Part<'a>,
}

/// What a message is.
pub(crate) enum Kind<'a, 'b> {
    /// The agent asks something of us; `id` is how it wants to be answered, as raw JSON.
    Request { id: &'a str, method: &'b str },
    /// The agent tells us something.
    Notification(&'b str),
    /// The agent answers our request.
    Response { id: u64, result: Result<Part<'a>, Part<'a>> },
    /// None of these.
    Other,
}

impl<'a> Message<'a> {
    pub(crate) fn kind(&self) -> Kind<'a, '_> {
        match (self.id, self.method.get()) {
            (Some(id), Some(method)) => Kind::Request { id: id.get(), method },
            (None, Some(method)) => Kind::Notification(method),
            (Some(id), None) => match id.get().parse() {
                Ok(id) => {
                    let result = if self.error.is_some() && raw(self.error) != "null" {
                        Err(self.error)
                    } else {
                        Ok(self.result)
                    };
                    Kind::Response { id, result }
                }
                Err(_) => Kind::Other,
            },
            (None, None) => Kind::Other,
        }
    }
}

/// An error of the agent.
#[derive(Deserialize, Default)]
pub(crate) struct RpcError<'a> {
    #[serde(default)]
    pub(crate) code: Num,
    #[serde(borrow, default)]
    pub(crate) message: Str<'a>,
    #[serde(borrow, default)]
    pub(crate) data: Part<'a>,
}

pub(crate) fn request(id: u64, method: &str, params: &Value) -> Vec<u8> {
    line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

pub(crate) fn notification(method: &str, params: &Value) -> Vec<u8> {
    line(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// Answers a request, whose id is given as raw JSON.
pub(crate) fn response(id: &str, result: &Value) -> Vec<u8> {
    let id: Value = serde_json::from_str(id).unwrap_or(Value::Null);
    line(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// Refuses a request that is not supported.
pub(crate) fn refusal(id: &str, method: &str) -> Vec<u8> {
    let id: Value = serde_json::from_str(id).unwrap_or(Value::Null);
    let error = json!({"code": -32601, "message": format!("{method} is not supported")});
    line(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

fn line(value: &Value) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}
