//! One suite over all adapters: every kept stream, hand-made or recorded from a real agent, is read
//! and must keep the same promises. What is seen in each is kept beside it as a trace; set
//! `BELAY_UPDATE_TRACES` to write the traces anew, and look at the difference.

use std::fs;

use crate::common::{Kept, kept, read};
use belay_agent::{
    Agent, Clip, Detail, Drift, Exit, Failure, Judgement, Observation, Seen, TurnEnd,
};

/// One observation on one line.
fn render(seen: &Seen) -> String {
    let what = match &seen.what {
        Observation::Event(event) => {
            let detail = match &event.detail {
                Detail::Plain => String::new(),
                Detail::Text(text) => clip(text),
                Detail::Tool { id, name, input } => format!("{name} {id} {}", clip(input)),
                Detail::Outcome { id, name, failed, output } => {
                    let failed = if *failed { "failed " } else { "" };
                    format!("{name} {id} {failed}{}", clip(output))
                }
                Detail::File(path) => path.to_string(),
                Detail::Model(model) => format!("model={model}"),
            };
            format!("{} {detail}", event.kind)
        }
        Observation::Conversation(id) => format!("conversation {id}"),
        Observation::Usage(usage) => {
            let cost = usage.cost.map_or(String::new(), |cost| format!(" {cost}"));
            format!(
                "usage in={} out={} read={} write={}{cost}",
                usage.input_tokens,
                usage.output_tokens,
                usage.cache_read_tokens,
                usage.cache_write_tokens
            )
        }
        Observation::ToolOpened { id, name } => format!("tool-opened {name} {id}"),
        Observation::ToolClosed { id } => format!("tool-closed {id}"),
        Observation::Question(question) => {
            format!("question {} {:?} {:?}", question.key, question.text, question.options)
        }
        Observation::QuestionClosed(key) => format!("question-closed {key}"),
        Observation::TurnStarted => "turn-started".into(),
        Observation::TurnEnded(TurnEnd::Succeeded) => "turn-ended succeeded".into(),
        Observation::TurnEnded(TurnEnd::Failed(failure)) => {
            format!("turn-ended {}", failed(failure))
        }
        Observation::Drift(drift) => format!("drift {drift}"),
        Observation::Write(write) => {
            let text = String::from_utf8_lossy(&write.bytes);
            let lines: Vec<&str> = text.trim_end().lines().collect();
            format!("write #{} {}", write.number, lines.join(" "))
        }
    };
    format!("{:>7} {}", seen.at.start, what.trim_end())
}

fn clip(clip: &Clip) -> String {
    let short: String = clip.text.chars().take(60).collect();
    if short.len() < clip.bytes {
        format!("{short:?}… {}", clip.bytes)
    } else {
        format!("{short:?}")
    }
}

fn failed(failure: &Failure) -> String {
    let reset = failure.resets_at.map_or(String::new(), |at| format!(" until {}", at.as_millis()));
    let lost = if failure.conversation_lost { " conversation-lost" } else { "" };
    format!("failed {}{reset}{lost} {}", failure.cause, clip(&failure.message))
}

fn verdict(judgement: &Judgement) -> String {
    match judgement {
        Judgement::Succeeded => "succeeded".into(),
        Judgement::Failed(failure) => failed(failure),
    }
}

fn trace(kept: &Kept) -> String {
    let reading = read(&kept.setting, [&kept.stream[..]], kept.setting.exit);
    let mut text: String = reading.seen.iter().map(|seen| render(seen) + "\n").collect();
    text.push_str(&format!("{:?} → {}\n", kept.setting.exit, verdict(&reading.judgement)));
    text
}

#[test]
fn every_stream_is_read_as_its_trace_says() {
    let update = std::env::var_os("BELAY_UPDATE_TRACES").is_some();
    let mut wrong = Vec::new();
    for kept in kept() {
        let path = kept.path.with_extension("trace");
        let now = trace(&kept);
        if update {
            fs::write(&path, &now).unwrap();
        } else if fs::read_to_string(&path).unwrap_or_default() != now {
            wrong.push(format!("{}:\n{now}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "set BELAY_UPDATE_TRACES to accept:\n{}", wrong.join("\n"));
}

#[test]
fn every_agent_has_streams_of_success_failure_drift_and_no_result() {
    let all = kept();
    for agent in Agent::ALL {
        let of_agent: Vec<_> = all.iter().filter(|kept| kept.setting.agent == agent).collect();
        let judged = |succeeded: bool| {
            of_agent.iter().any(|kept| {
                let reading = read(&kept.setting, [&kept.stream[..]], kept.setting.exit);
                (reading.judgement == Judgement::Succeeded) == succeeded
            })
        };
        assert!(judged(true), "{agent} has a stream that succeeds");
        assert!(judged(false), "{agent} has a stream that fails");
    }
}

#[test]
fn real_agents_are_recorded_at_the_version_that_is_tested() {
    let all = kept();
    for agent in Agent::ALL {
        let Some(version) = agent.facts().tested else { continue };
        let folder = format!("fixtures/{agent}-{version}/");
        let recorded = all.iter().filter(|kept| kept.path.to_str().unwrap().contains(&folder));
        assert!(recorded.count() >= 4, "{folder} holds the recordings; see docs/agents.md");
    }
}

/// However a stream is cut, what is seen in it is the same.
#[test]
fn the_cut_of_a_stream_does_not_matter() {
    for kept in kept() {
        let whole = read(&kept.setting, [&kept.stream[..]], kept.setting.exit);
        let sizes: &[usize] = if kept.stream.len() < 50_000 { &[1, 7, 4_096] } else { &[997] };
        for size in sizes {
            let cut = read(&kept.setting, kept.stream.chunks(*size), kept.setting.exit);
            assert_eq!(cut.seen, whole.seen, "{} in pieces of {size}", kept.path.display());
            assert_eq!(cut.judgement, whole.judgement);
        }
    }
}

/// Success needs the whole of it: a stream that stops before its end, with whatever exit, is none.
/// A plain command says nothing but by its exit.
#[test]
fn a_stream_that_stops_early_is_never_a_success() {
    for kept in kept().iter().filter(|kept| kept.setting.agent != Agent::Command) {
        let whole = read(&kept.setting, [&kept.stream[..]], kept.setting.exit);
        let ends = whole.seen.iter().filter(|seen| matches!(seen.what, Observation::TurnEnded(_)));
        let Some(first_end) = ends.map(|seen| seen.at.start).min() else { continue };
        let lines = kept.stream.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        for (at, _) in lines.filter(|(at, _)| (*at as u64) < first_end) {
            for exit in [Exit::Code(0), Exit::Ended, Exit::Unseen] {
                let cut = read(&kept.setting, [&kept.stream[..=at]], exit);
                assert_ne!(
                    cut.judgement,
                    Judgement::Succeeded,
                    "{} cut at {at} with {exit:?}",
                    kept.path.display()
                );
            }
        }
    }
}

#[test]
fn a_bad_exit_is_never_a_success() {
    for kept in kept() {
        for exit in [Exit::Code(1), Exit::Code(137), Exit::Signal(9), Exit::Unseen] {
            let reading = read(&kept.setting, [&kept.stream[..]], exit);
            assert_ne!(reading.judgement, Judgement::Succeeded, "{}", kept.path.display());
        }
    }
}

/// What an agent never printed before changes nothing but the count of drift.
#[test]
fn noise_between_the_lines_changes_no_judgement() {
    let long = vec![b'x'; belay_agent::LINE_LIMIT + 1];
    let noises: [(&[u8], Option<Drift>); 4] = [
        (b"", None),
        (b"Debugger attached.", Some(Drift::NotJson)),
        (b"\xff\xfe\x00", Some(Drift::NotUtf8)),
        (&long, Some(Drift::TooLong)),
    ];
    for kept in kept() {
        let whole = read(&kept.setting, [&kept.stream[..]], kept.setting.exit);
        let middle = kept.stream.len() / 2;
        let line = kept.stream[middle..].iter().position(|byte| *byte == b'\n');
        let (head, tail) = kept.stream.split_at(line.map_or(0, |line| middle + line + 1));
        for (noise, drift) in &noises {
            let pieces = [head, noise, b"\n", tail];
            let noisy = read(&kept.setting, pieces, kept.setting.exit);
            assert_eq!(noisy.judgement, whole.judgement, "{}", kept.path.display());
            assert_eq!(noisy.reader.usage(), whole.reader.usage());
            // Lines of a plain command are its output, whatever they are.
            let counts = kept.setting.agent != Agent::Command || *drift != Some(Drift::NotJson);
            if let Some(drift) = drift.as_ref().filter(|_| counts) {
                assert!(noisy.reader.drift().any(|(seen, _)| seen == drift), "{drift} is counted");
            }
        }
    }
}

/// The last line again: agents have printed two results. The judgement does not turn.
#[test]
fn a_result_that_comes_twice_counts_once() {
    for kept in kept() {
        let lines: Vec<&[u8]> = kept.stream.split_inclusive(|byte| *byte == b'\n').collect();
        let (Some(last), true) = (lines.last(), kept.stream.ends_with(b"\n")) else { continue };
        let whole = read(&kept.setting, [&kept.stream[..]], kept.setting.exit);
        let twice = read(&kept.setting, [&kept.stream[..], last], kept.setting.exit);
        let same = matches!(
            (&whole.judgement, &twice.judgement),
            (Judgement::Succeeded, Judgement::Succeeded)
                | (Judgement::Failed(_), Judgement::Failed(_))
        );
        assert!(same, "{}: {:?}", kept.path.display(), twice.judgement);
    }
}

/// Everything that was opened is closed when the turn is over.
#[test]
fn nothing_stays_open_after_the_end() {
    for kept in kept() {
        let reading = read(&kept.setting, [&kept.stream[..]], kept.setting.exit);
        let ended = matches!(reading.reader.turn(), belay_agent::Turn::Ended(_));
        if ended && kept.setting.agent != Agent::Command {
            assert_eq!(reading.reader.open_tools().count(), 0, "{}", kept.path.display());
            assert_eq!(reading.reader.questions().count(), 0, "{}", kept.path.display());
        }
    }
}

/// Writes are numbered from 0, so that whoever reads again knows which were done.
#[test]
fn writes_are_numbered_in_order() {
    for kept in kept() {
        let reading = read(&kept.setting, [&kept.stream[..]], kept.setting.exit);
        let numbers = reading.seen.iter().filter_map(|seen| match &seen.what {
            Observation::Write(write) => Some(write.number),
            _ => None,
        });
        assert!(numbers.eq(0
            ..reading.seen.iter().filter(|s| matches!(s.what, Observation::Write(_))).count()
                as u64));
    }
}
