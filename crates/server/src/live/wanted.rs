//! What a stream wants: of which tasks and workflows, and which kinds of events.

use std::collections::BTreeSet;

use belay_api::Code;
use belay_kernel::{TaskId, WorkflowId};
use belay_store::EventFilter;

use super::frame::Frame;
use crate::answer::Failed;

/// The most names in one filter.
const MOST: usize = 100;

/// Which events a stream wants. What is empty does not filter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) tasks: BTreeSet<TaskId>,
    pub(crate) workflows: BTreeSet<WorkflowId>,
    kinds: Vec<Kind>,
}

/// A kind of event, by its name, by how its name begins, or by what it announces.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    Named(String),
    Beginning(String),
}

impl Kind {
    fn covers(&self, frame: &Frame) -> bool {
        let announced = frame.announces.map(|announced| announced.name());
        match self {
            Self::Named(name) => frame.kind == *name || announced == Some(name),
            Self::Beginning(prefix) => frame.kind.starts_with(prefix.as_str()),
        }
    }
}

/// The names in a filter: comma between them, white space around them.
pub(crate) fn names(list: &str) -> Result<Vec<&str>, Failed> {
    let names: Vec<_> = list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.len() > MOST {
        let detail = format!("a filter takes at most {MOST} names");
        return Err(Failed::new(Code::BadRequest, detail));
    }
    Ok(names)
}

impl Wanted {
    /// The same, of these kinds only: `task_completed,agent.*`.
    pub(crate) fn of_kinds(mut self, list: &str) -> Result<Self, Failed> {
        for name in names(list)? {
            self.kinds.push(match name.strip_suffix('*') {
                Some(prefix) => Kind::Beginning(prefix.to_owned()),
                None => Kind::Named(name.to_owned()),
            });
        }
        Ok(self)
    }

    /// The same, of these workflows only.
    pub(crate) fn of_workflows(mut self, list: &str) -> Result<Self, Failed> {
        for name in names(list)? {
            let bad = |_| {
                let name: String = name.chars().take(80).collect();
                Failed::new(Code::BadRequest, format!("`{name}` is not the id of a workflow"))
            };
            self.workflows.insert(name.parse().map_err(bad)?);
        }
        Ok(self)
    }

    /// Whether this event is wanted.
    pub(crate) fn covers(&self, frame: &Frame) -> bool {
        let task = self.tasks.is_empty() || frame.task.is_some_and(|id| self.tasks.contains(&id));
        let of = |id| self.workflows.contains(&id);
        let workflow = self.workflows.is_empty() || frame.workflow.is_some_and(of);
        let kind = self.kinds.is_empty() || self.kinds.iter().any(|kind| kind.covers(frame));
        task && workflow && kind
    }

    /// As much of it as the log can be asked for.
    pub(crate) fn of_log(&self) -> EventFilter {
        fn only<T: Copy>(set: &BTreeSet<T>) -> Option<T> {
            let mut values = set.iter();
            values.next().copied().filter(|_| values.next().is_none())
        }
        EventFilter { task: only(&self.tasks), session: None, workflow: only(&self.workflows) }
    }
}

#[cfg(test)]
mod tests {
    use belay_kernel::{Revision, Timestamp};
    use belay_store::{Event, NewEvent};

    use super::*;

    fn frame(task: u128, kind: &str) -> Frame {
        let body = r#"{"from":"RUNNING","state":"FAILED","group":"resting"}"#.to_owned();
        let event = NewEvent::task(TaskId::from_bits(task), kind, body, Timestamp::EPOCH);
        Frame::new(1, Event { number: 1, revision: Revision(1), event })
    }

    #[test]
    fn kinds_are_named_begin_or_announce() {
        let wanted = |list: &str| Wanted::default().of_kinds(list).unwrap();
        for (list, kind, covered) in [
            ("", "agent.tool_use", true),
            ("agent.tool_use", "agent.tool_use", true),
            ("agent.tool_use", "agent.tool_result", false),
            ("agent.*", "agent.tool_result", true),
            ("agent.*", "task.failed", false),
            ("x , task_completed", "task.failed", true),
            ("task_question", "task.failed", false),
            ("task_question", "task.question", true),
        ] {
            assert_eq!(wanted(list).covers(&frame(1, kind)), covered, "{list} {kind}");
        }
    }

    #[test]
    fn one_task_is_asked_of_the_log_and_several_are_sorted_out_here() {
        let of = |ids: &[u128]| Wanted {
            tasks: ids.iter().map(|id| TaskId::from_bits(*id)).collect(),
            ..Wanted::default()
        };
        assert_eq!(of(&[3]).of_log().task, Some(TaskId::from_bits(3)));
        assert_eq!(of(&[3, 4]).of_log(), EventFilter::default());
        assert!(of(&[3, 4]).covers(&frame(4, "x")) && !of(&[3]).covers(&frame(4, "x")));
    }

    #[test]
    fn filters_have_bounds() {
        assert!(Wanted::default().of_kinds(&"a,".repeat(101)).is_err());
        assert!(Wanted::default().of_workflows("what").is_err());
    }
}
