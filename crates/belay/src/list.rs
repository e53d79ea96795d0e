//! `belay ls`.

use belay_api::{ListTasks, TaskPage, TaskSummary};
use belay_kernel::{Money, Timestamp};

use crate::cli::Ls;
use crate::connect::Link;
use crate::fault::{Exit, Fault};
use crate::screen::{Ink, Palette, one_line, say, say_json};
use crate::times::{now, short};

/// Every state, in the order of a task's life.
const STATES: [&str; 11] = [
    "PENDING",
    "QUEUED",
    "CLAIMED",
    "RUNNING",
    "BLOCKED",
    "READY",
    "COMPLETED",
    "FAILED",
    "TIMED_OUT",
    "CANCELLED",
    "BUDGET_EXCEEDED",
];
/// Those that are not at rest.
const NOT_AT_REST: &[&str] = STATES.split_at(6).0;
/// How many of the newest are shown whatever they are.
const NEWEST: usize = 10;
/// How many are asked for at a time.
const PAGE: usize = 200;

/// Lists tasks.
pub(crate) async fn list(link: &mut Link, ls: &Ls, json: bool) -> Result<Exit, Fault> {
    let page = if ls.state.is_empty() && !ls.all {
        usual(link, ls).await?
    } else {
        let state = states(&ls.state)?;
        let which = ListTasks { state, role: ls.role.clone(), ..ListTasks::default() };
        pages(link, which, ls.limit.unwrap_or(usize::MAX)).await?
    };
    if json {
        say_json(&page);
    } else if page.tasks.is_empty() {
        say("no tasks");
    } else {
        say(&table(&page.tasks, now(), Palette::stdout()));
    }
    Ok(Exit::Done)
}

/// What is not at rest, and the newest.
async fn usual(link: &mut Link, ls: &Ls) -> Result<TaskPage, Fault> {
    let limit = ls.limit.unwrap_or(usize::MAX);
    let which = |state: String| ListTasks { state, role: ls.role.clone(), ..ListTasks::default() };
    let mut page = pages(link, which(NOT_AT_REST.join(",")), limit).await?;
    let newest = pages(link, which(String::new()), NEWEST.min(limit)).await?;
    for task in newest.tasks {
        if page.tasks.iter().all(|known| known.id != task.id) {
            page.tasks.push(task);
        }
    }
    page.tasks.sort_by_key(|task| (std::cmp::Reverse(task.created_at), task.id));
    page.tasks.truncate(limit);
    page.after = None;
    Ok(page)
}

/// As many pages as it takes to have `limit` tasks.
async fn pages(link: &mut Link, which: ListTasks, limit: usize) -> Result<TaskPage, Fault> {
    let mut whole = TaskPage { tasks: Vec::new(), after: None };
    loop {
        let left = limit - whole.tasks.len();
        let after = whole.after.clone();
        let ask = ListTasks { limit: Some(left.min(PAGE)), after, ..which.clone() };
        let page = link.ask(async |client| client.list(&ask).await).await?;
        let empty = page.tasks.is_empty();
        whole.tasks.extend(page.tasks);
        whole.after = page.after;
        if whole.after.is_none() || whole.tasks.len() >= limit || empty {
            return Ok(whole);
        }
    }
}

/// The states that are named, as the API takes them.
fn states(named: &[String]) -> Result<String, Fault> {
    let mut states = Vec::new();
    for name in named {
        let upper = name.trim().to_ascii_uppercase().replace('-', "_");
        if !STATES.contains(&upper.as_str()) {
            let text =
                format!("--state {name}: there is no such state; known are {}", STATES.join(", "));
            return Err(Fault::usage(text));
        }
        states.push(upper);
    }
    Ok(states.join(","))
}

/// The shortest beginning of at least four letters that no other of these ids has.
pub(crate) fn shortest(ids: &[String]) -> usize {
    let longest = ids.iter().map(String::len).max().unwrap_or(4);
    let unique = |length: &usize| {
        let mut heads: Vec<&str> = ids.iter().map(|id| &id[..(*length).min(id.len())]).collect();
        heads.sort_unstable();
        heads.windows(2).all(|pair| pair[0] != pair[1])
    };
    (4..=longest).find(unique).unwrap_or(longest)
}

/// The table.
fn table(tasks: &[TaskSummary], now: Timestamp, palette: Palette) -> String {
    let ids: Vec<String> = tasks.iter().map(|task| task.id.to_string()).collect();
    let length = shortest(&ids);
    let head = ["ID", "STATE", "TITLE", "AGE", "AGENT", "ATTEMPTS", "COST"].map(str::to_owned);
    let mut rows = vec![head];
    for (task, id) in tasks.iter().zip(&ids) {
        let cost = if task.cost == Money::ZERO { "-".into() } else { task.cost.to_string() };
        rows.push([
            id[..length.min(id.len())].to_owned(),
            task.state.clone(),
            one_line(&task.title, 48),
            short(now.since(task.created_at)),
            one_line(&task.agent, 12),
            task.attempts.0.to_string(),
            cost,
        ]);
    }
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let lines = rows.iter().enumerate().map(|(index, row)| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let padding = " ".repeat(width - cell.chars().count());
            let shown = match (index, column) {
                (0, _) => palette.paint(Ink::Faint, cell),
                (_, 1) => palette.state(cell),
                _ => cell.clone(),
            };
            format!("{shown}{padding}")
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_kernel::status::Group;
    use belay_kernel::{AttemptNumber, TaskId};

    fn task(bits: u128, state: &str, title: &str, age_s: i64) -> TaskSummary {
        TaskSummary {
            id: TaskId::from_bits(bits),
            title: title.into(),
            state: state.into(),
            group: Group::Active,
            reason: "created".into(),
            since: Timestamp::EPOCH,
            created_at: Timestamp::from_millis(1_000_000_000 - age_s * 1000),
            role: "default".into(),
            agent: "claude".into(),
            parent: None,
            attempts: AttemptNumber(2),
            priority: 0,
            waits_for: 0,
            cost: Money::from_micros(u64::try_from(age_s).unwrap_or(0) * 10_000),
            tokens: 0,
        }
    }

    #[test]
    fn tasks_are_told_in_a_table() {
        let head = 0x0123_4567_89ab_cdef_0123_u128;
        let tasks = [
            task(head, "RUNNING", "Make the tests pass", 12),
            task(head ^ (1 << 58), "READY", "A title\nwith a second line", 4000),
            task(!head, "BUDGET_EXCEEDED", &"long ".repeat(30), 0),
        ];
        let now = Timestamp::from_millis(1_000_000_000);
        insta::assert_snapshot!(table(&tasks, now, Palette::plain()));
    }

    #[test]
    fn ids_are_as_short_as_they_can_be_and_still_unique() {
        let ids = |list: &[&str]| list.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        assert_eq!(shortest(&ids(&["abcdefgh", "bcdefghi"])), 4);
        assert_eq!(shortest(&ids(&["abcdefgh", "abcdezzz"])), 6);
        assert_eq!(shortest(&ids(&[])), 4);
    }

    #[test]
    fn states_are_taken_in_any_case_and_only_known_ones() {
        let named =
            |list: &[&str]| states(&list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        assert_eq!(named(&["running", "timed-out"]).unwrap(), "RUNNING,TIMED_OUT");
        assert!(named(&["runing"]).unwrap_err().text.contains("known are PENDING"));
        assert_eq!(NOT_AT_REST.last(), Some(&"READY"));
    }
}
