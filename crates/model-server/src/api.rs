//! How each model API says the same few things.
//!
//! A reply is made as server-sent events in two parts, what begins it and what ends it, so that a
//! hang or a break can come between the two; and as one whole document, for clients that do not
//! stream.

use serde_json::{Value, json};

use crate::script::{Act, Tokens};

/// A model API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Api {
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Responses.
    Responses,
    /// OpenAI's Chat Completions.
    Chat,
    /// Gemini's generateContent.
    Gemini,
}

/// A reply in all its forms.
pub(crate) struct Reply {
    pub(crate) beginning: Vec<String>,
    pub(crate) ending: Vec<String>,
    pub(crate) whole: Value,
}

/// What the model does in one reply.
pub(crate) enum Content<'a> {
    Text(&'a str),
    Call { tool: &'a str, input: &'a Value, id: &'a str },
    Refusal,
}

impl<'a> Content<'a> {
    /// What of an act is said by the model; nothing for what only the connection does.
    pub(crate) fn of(act: &'a Act, id: &'a str) -> Option<Self> {
        match act {
            Act::Say(text) => Some(Self::Text(text)),
            Act::Call { tool, input } => Some(Self::Call { tool, input, id }),
            Act::Refuse => Some(Self::Refusal),
            Act::Hang(after) | Act::Drop(after) => after.as_deref().map(Self::Text),
            Act::Fail { .. } => None,
        }
    }
}

impl Api {
    /// The API that a path belongs to.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        if path.ends_with("/messages") {
            Some(Self::Messages)
        } else if path.ends_with("/responses") {
            Some(Self::Responses)
        } else if path.ends_with("/chat/completions") {
            Some(Self::Chat)
        } else if path.ends_with("enerateContent") {
            Some(Self::Gemini)
        } else {
            None
        }
    }

    /// Whether the client wants events.
    pub(crate) fn streams(self, path: &str, body: &Value) -> bool {
        match self {
            Self::Gemini => path.contains(":streamGenerateContent"),
            Self::Messages | Self::Responses | Self::Chat => body["stream"] == json!(true),
        }
    }

    /// Whether the request is a step of the conversation. Without tools it is a title, a summary
    /// or a routing question, which no script is about.
    pub(crate) fn is_conversation(body: &Value) -> bool {
        body["tools"].as_array().is_some_and(|tools| !tools.is_empty())
    }

    pub(crate) fn reply(self, content: &Content<'_>, tokens: Tokens, model: &str) -> Reply {
        match self {
            Self::Messages => messages(content, tokens, model),
            Self::Responses => responses(content, tokens),
            Self::Chat => chat(content, tokens, model),
            Self::Gemini => gemini(content, tokens, model),
        }
    }

    /// The body of an error.
    pub(crate) fn error(self, status: u16, reset: Option<u64>) -> Value {
        if let (Self::Responses, Some(reset)) = (self, reset) {
            return json!({"error": {"type": "usage_limit_reached", "plan_type": "plus",
                "message": "the usage limit has been reached", "resets_at": reset}});
        }
        let (kind, text) = match status {
            401 => ("authentication_error", "invalid api key"),
            403 => ("permission_error", "not allowed"),
            404 => ("not_found_error", "no such model"),
            413 => ("request_too_large", "the request is too large"),
            429 => ("rate_limit_error", "this would exceed the rate limit"),
            529 => ("overloaded_error", "Overloaded"),
            500.. => ("api_error", "internal server error"),
            _ => ("invalid_request_error", "the request is wrong"),
        };
        match self {
            Self::Messages => json!({"type": "error", "error": {"type": kind, "message": text}}),
            Self::Responses | Self::Chat => {
                json!({"error": {"type": kind, "code": kind, "message": text, "param": null}})
            }
            Self::Gemini => json!({"error": {"code": status, "message": text, "status": kind}}),
        }
    }

    /// The headers by which a provider says when an allowance that is used up is there again.
    pub(crate) fn limit_headers(self, reset: u64) -> Vec<(&'static str, String)> {
        match self {
            Self::Messages => vec![
                ("anthropic-ratelimit-unified-status", "rejected".into()),
                ("anthropic-ratelimit-unified-reset", reset.to_string()),
                ("anthropic-ratelimit-unified-representative-claim", "five_hour".into()),
            ],
            Self::Responses => vec![
                ("x-codex-primary-used-percent", "100".into()),
                ("x-codex-primary-window-minutes", "300".into()),
                ("x-codex-primary-reset-at", reset.to_string()),
            ],
            Self::Chat | Self::Gemini => Vec::new(),
        }
    }
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn typed(data: Value) -> String {
    event(data["type"].as_str().unwrap_or_default(), &data)
}

/// Text in the pieces that a model would send.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let size = (text.len() / 4).clamp(8, 64 << 10);
    let mut rest = text;
    std::iter::from_fn(move || {
        let at = (0..=size.min(rest.len())).rev().find(|&at| rest.is_char_boundary(at))?;
        let at = if at == 0 { rest.len() } else { at };
        let (piece, tail) = rest.split_at(at);
        rest = tail;
        (!piece.is_empty()).then_some(piece)
    })
}

fn messages(content: &Content<'_>, tokens: Tokens, model: &str) -> Reply {
    let usage = |output: u64| {
        json!({"input_tokens": tokens.input.saturating_sub(tokens.cached), "output_tokens": output,
            "cache_read_input_tokens": tokens.cached, "cache_creation_input_tokens": 0})
    };
    let (block, empty, stop) = match content {
        Content::Text(text) => {
            (json!({"type": "text", "text": text}), json!({"type": "text", "text": ""}), "end_turn")
        }
        Content::Call { tool, input, id } => (
            json!({"type": "tool_use", "id": id, "name": tool, "input": input}),
            json!({"type": "tool_use", "id": id, "name": tool, "input": {}}),
            "tool_use",
        ),
        Content::Refusal => {
            (json!({"type": "text", "text": "No."}), json!({"type": "text", "text": ""}), "refusal")
        }
    };
    let mut message = json!({"id": "msg_scripted", "type": "message", "role": "assistant",
        "model": model, "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": usage(1)});
    let mut beginning = vec![
        typed(json!({"type": "message_start", "message": message})),
        typed(json!({"type": "content_block_start", "index": 0, "content_block": empty})),
    ];
    let delta =
        |delta: Value| typed(json!({"type": "content_block_delta", "index": 0, "delta": delta}));
    match content {
        Content::Text(text) => beginning
            .extend(pieces(text).map(|text| delta(json!({"type": "text_delta", "text": text})))),
        Content::Refusal => beginning.push(delta(json!({"type": "text_delta", "text": "No."}))),
        Content::Call { input, .. } => beginning
            .push(delta(json!({"type": "input_json_delta", "partial_json": input.to_string()}))),
    }
    let ending = vec![
        typed(json!({"type": "content_block_stop", "index": 0})),
        typed(json!({"type": "message_delta", "usage": {"output_tokens": tokens.output},
            "delta": {"stop_reason": stop, "stop_sequence": null}})),
        typed(json!({"type": "message_stop"})),
    ];
    message["content"] = json!([block]);
    message["stop_reason"] = json!(stop);
    message["usage"] = usage(tokens.output);
    Reply { beginning, ending, whole: message }
}

fn responses(content: &Content<'_>, tokens: Tokens) -> Reply {
    let item = match content {
        Content::Text(text) => json!({"type": "message", "id": "msg_scripted", "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}]}),
        Content::Refusal => json!({"type": "message", "id": "msg_scripted", "role": "assistant",
            "status": "completed", "content": [{"type": "refusal", "refusal": "No."}]}),
        Content::Call { tool, input, id } => match input.as_str() {
            Some(text) => json!({"type": "custom_tool_call", "id": "ctc_scripted", "call_id": id,
                "name": tool, "input": text, "status": "completed"}),
            None => function_call(tool, input, id),
        },
    };
    let mut beginning = vec![
        typed(json!({"type": "response.created", "response": {"id": "resp_scripted"}})),
        typed(json!({"type": "response.output_item.added", "output_index": 0, "item": item})),
    ];
    if let Content::Text(text) = content {
        beginning.extend(pieces(text).map(|text| {
            typed(json!({"type": "response.output_text.delta", "item_id": "msg_scripted",
                "output_index": 0, "content_index": 0, "delta": text}))
        }));
    }
    let whole = json!({"id": "resp_scripted", "object": "response", "status": "completed",
        "output": [item],
        "usage": {"input_tokens": tokens.input, "output_tokens": tokens.output,
            "input_tokens_details": {"cached_tokens": tokens.cached},
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens.input + tokens.output}});
    let ending = vec![
        typed(json!({"type": "response.output_item.done", "output_index": 0, "item": item})),
        typed(json!({"type": "response.completed", "response": whole})),
    ];
    Reply { beginning, ending, whole }
}

/// A tool of an MCP server is named `namespace/name` in scripts; Codex offers it in two parts.
fn function_call(tool: &str, input: &Value, id: &str) -> Value {
    let mut call = json!({"type": "function_call", "id": "fc_scripted", "call_id": id,
        "name": tool, "arguments": input.to_string(), "status": "completed"});
    if let Some((namespace, name)) = tool.split_once('/') {
        call["namespace"] = json!(namespace);
        call["name"] = json!(name);
    }
    call
}

fn chat(content: &Content<'_>, tokens: Tokens, model: &str) -> Reply {
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0,
            "model": model, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let frame = |data: &Value| format!("data: {data}\n\n");
    let usage = json!({"prompt_tokens": tokens.input, "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached}});
    let mut beginning = Vec::new();
    let (message, finish) = match content {
        Content::Text(text) => {
            beginning
                .extend(pieces(text).map(|text| {
                    frame(&chunk(json!({"role": "assistant", "content": text}), None))
                }));
            (json!({"role": "assistant", "content": text}), "stop")
        }
        Content::Refusal => {
            let message = json!({"role": "assistant", "content": null, "refusal": "No."});
            beginning.push(frame(&chunk(message.clone(), None)));
            (message, "content_filter")
        }
        Content::Call { tool, input, id } => {
            let call = json!({"index": 0, "id": id, "type": "function",
                "function": {"name": tool, "arguments": input.to_string()}});
            let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
            beginning.push(frame(&chunk(message.clone(), None)));
            (message, "tool_calls")
        }
    };
    let mut last = chunk(json!({}), Some(finish));
    last["usage"] = usage.clone();
    let ending = vec![frame(&last), "data: [DONE]\n\n".into()];
    let whole = json!({"id": "chatcmpl-scripted", "object": "chat.completion", "created": 0,
        "model": model, "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}]});
    Reply { beginning, ending, whole }
}

fn gemini(content: &Content<'_>, tokens: Tokens, model: &str) -> Reply {
    let frame = |data: &Value| format!("data: {data}\r\n\r\n");
    let usage = json!({"promptTokenCount": tokens.input, "candidatesTokenCount": tokens.output,
        "totalTokenCount": tokens.input + tokens.output,
        "cachedContentTokenCount": tokens.cached});
    let chunk = |parts: Value, finish: Option<&str>| {
        let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
        if let Some(finish) = finish {
            candidate["finishReason"] = json!(finish);
        }
        json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": model})
    };
    let (parts, finish) = match content {
        Content::Text(text) => (json!([{"text": text}]), "STOP"),
        Content::Refusal => (json!([{"text": ""}]), "SAFETY"),
        Content::Call { tool, input, id } => {
            (json!([{"functionCall": {"id": id, "name": tool, "args": input}}]), "STOP")
        }
    };
    let beginning = match content {
        Content::Text(text) => {
            pieces(text).map(|text| frame(&chunk(json!([{"text": text}]), None))).collect()
        }
        Content::Refusal => Vec::new(),
        Content::Call { .. } => vec![frame(&chunk(parts.clone(), None))],
    };
    let last = match content {
        Content::Refusal => chunk(json!([]), Some(finish)),
        Content::Text(_) | Content::Call { .. } => chunk(json!([{"text": ""}]), Some(finish)),
    };
    Reply { beginning, ending: vec![frame(&last)], whole: chunk(parts, Some(finish)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lose_nothing() {
        for text in ["", "a", "short text", "ä€😀 many wide letters ä€😀", &"x".repeat(1 << 20)]
        {
            assert_eq!(pieces(text).collect::<String>(), text);
        }
    }

    #[test]
    fn paths_are_told_apart() {
        for (path, api) in [
            ("/v1/messages?beta=true", Some(Api::Messages)),
            ("/v1/messages/count_tokens", None),
            ("/v1/responses", Some(Api::Responses)),
            ("/v1/chat/completions", Some(Api::Chat)),
            ("/v1beta/models/m:streamGenerateContent?alt=sse", Some(Api::Gemini)),
            ("/v1beta/models/m:generateContent", Some(Api::Gemini)),
            ("/v1/models", None),
        ] {
            assert_eq!(Api::of_path(path), api, "{path}");
        }
    }
}
