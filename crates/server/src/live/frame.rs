//! An event as it is sent: rendered once, shared by every stream.

use std::fmt::Write as _;
use std::ops::Range;

use axum::body::Bytes;
use belay_api::Announcement;
use belay_kernel::{AttemptNumber, TaskId, Timestamp, WorkflowId};
use belay_store::{Cursor, Event};
use serde::Serialize;
use serde_json::value::RawValue;

/// An event, ready to be sent.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) number: u64,
    pub(crate) task: Option<TaskId>,
    pub(crate) workflow: Option<WorkflowId>,
    pub(crate) kind: String,
    pub(crate) announces: Option<Announcement>,
    sse: Bytes,
    json: Range<usize>,
}

/// The same members as [`belay_api::EventView`], with the body as it is stored.
#[derive(Serialize)]
struct View<'a> {
    cursor: &'a str,
    task: Option<TaskId>,
    attempt: Option<AttemptNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<WorkflowId>,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    announces: Option<Announcement>,
    body: &'a RawValue,
    at: Timestamp,
}

impl Frame {
    /// An event of the log with this epoch.
    pub(crate) fn new(epoch: u64, event: Event) -> Self {
        let Event { number, event, .. } = event;
        let announces = Announcement::of(&event.kind, &event.body);
        let cursor = Cursor { epoch, number }.to_string();
        // Only white space between values can be a line's end, and would end the message.
        let body = if event.body.contains(['\n', '\r']) {
            event.body.replace(['\n', '\r'], " ")
        } else {
            event.body
        };
        let body = RawValue::from_string(body).unwrap_or_default();
        let mut sse = format!("id: {cursor}\n");
        if let Some(announced) = announces {
            let _ = writeln!(sse, "event: {}", announced.name());
        }
        sse.push_str("data: ");
        let begin = sse.len();
        let view = View {
            cursor: &cursor,
            task: event.task,
            attempt: event.attempt,
            workflow: event.workflow,
            kind: &event.kind,
            announces,
            body: &body,
            at: event.at,
        };
        let mut bytes = sse.into_bytes();
        // Nothing in it can fail to be JSON; an empty message would still carry the cursor.
        let _ = serde_json::to_writer(&mut bytes, &view);
        let json = begin..bytes.len();
        bytes.extend_from_slice(b"\n\n");
        Self {
            number,
            task: event.task,
            workflow: event.workflow,
            kind: event.kind,
            announces,
            sse: bytes.into(),
            json,
        }
    }

    /// As a server-sent event.
    pub(crate) fn sse(&self) -> Bytes {
        self.sse.clone()
    }

    /// As a JSON document.
    pub(crate) fn json(&self) -> Bytes {
        self.sse.slice(self.json.clone())
    }

    /// How many bytes it holds.
    pub(crate) fn size(&self) -> usize {
        self.sse.len()
    }
}

#[cfg(test)]
mod tests {
    use belay_kernel::Revision;
    use belay_store::NewEvent;

    use super::*;

    fn frame(kind: &str, body: &str) -> Frame {
        let event = NewEvent::task(TaskId::from_bits(5), kind, body.to_owned(), Timestamp::EPOCH);
        Frame::new(0xab, Event { number: 7, revision: Revision(1), event })
    }

    #[test]
    fn a_frame_is_what_the_api_shows_on_one_line() {
        let frame = frame("agent.tool_use", "{\n\"a\": 1}");
        let text = String::from_utf8(frame.sse().to_vec()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "id: ab-7");
        assert_eq!((lines.len(), lines[2]), (3, ""), "{text}");
        let view: belay_api::EventView = serde_json::from_slice(&frame.json()).unwrap();
        assert_eq!(lines[1], format!("data: {}", str::from_utf8(&frame.json()).unwrap()));
        assert_eq!((view.cursor.as_str(), view.body["a"].as_i64()), ("ab-7", Some(1)));
        assert_eq!(view.announces, None);
    }

    #[test]
    fn what_is_announced_has_a_name() {
        let body = r#"{"from":"RUNNING","state":"FAILED","group":"resting"}"#;
        let frame = frame("task.failed", body);
        assert!(frame.sse().starts_with(b"id: ab-7\nevent: task_completed\ndata: {"));
        assert_eq!(frame.announces, Some(Announcement::TaskCompleted));
    }

    #[test]
    fn a_body_that_is_no_json_is_null_and_hides_nothing_else() {
        let view: belay_api::EventView =
            serde_json::from_slice(&frame("x", "{ broken").json()).unwrap();
        assert_eq!((view.body, view.kind.as_str()), (serde_json::Value::Null, "x"));
    }
}
