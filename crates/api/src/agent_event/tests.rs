//! Bodies of events: what is taken, what is refused and in which words, and bytes at random.

use proptest::prelude::*;

use super::*;

fn one(kind: &str, seq: Option<u64>, data: &str) -> AgentEvent {
    AgentEvent { seq, kind: EventKind::from_name(kind), call: None, data: data.to_owned() }
}

fn refused(body: &str) -> (Code, String) {
    let problem = read_events(body.as_bytes()).unwrap_err();
    (problem.code, problem.detail)
}

#[test]
fn one_event_and_two_forms_of_a_batch_are_taken() {
    let event = r#"{"kind":"agent.tool_use","seq":7,"call":"c1","data":{"tool":"Bash"}}"#;
    let expected = AgentEvent {
        call: Some("c1".into()),
        ..one("agent.tool_use", Some(7), r#"{"tool":"Bash"}"#)
    };
    assert_eq!(read_events(event.as_bytes()), Ok(vec![expected.clone()]));
    for body in [format!("[{event}]"), format!(" {{\"events\": [{event}]}}")] {
        assert_eq!(read_events(body.as_bytes()), Ok(vec![expected.clone()]), "{body}");
    }
    assert_eq!(read_events(b"[]"), Ok(vec![]));
    let typed = read_events(br#"{"type":"agent.completed"}"#).unwrap();
    assert_eq!(typed, [one("agent.completed", None, "{}")]);
}

#[test]
fn no_agent_speaks_in_the_name_of_a_task() {
    for (name, kind) in [
        ("task.completed", "agent.task.completed"),
        ("completed", "agent.completed"),
        ("telepathy", "agent.telepathy"),
    ] {
        let body = format!("{{\"kind\":\"{name}\"}}");
        assert_eq!(read_events(body.as_bytes()).unwrap()[0].kind.name(), kind);
    }
}

#[test]
fn what_is_wrong_names_the_element() {
    let second = |event: &str| refused(&format!("[{{\"kind\":\"x\"}},{event}]"));
    for (event, expected) in [
        ("7", "events[1]: invalid type"),
        ("{}", "events[1]: missing field `kind`"),
        (r#"{"kind":""}"#, "events[1]: its `kind` is empty"),
        (r#"{"kind":"a\u0000"}"#, "events[1]: its `kind` is empty or not plain"),
        (r#"{"kind":"x","colour":1}"#, "events[1]: unknown field `colour`"),
        (r#"{"kind":"x","seq":2}"#, "events[1]: its `seq` does not follow"),
        (r#"{"kind":"x","seq":-1}"#, "events[1]: invalid value"),
        (r#"{"kind":"x","data":"\ud800"}"#, "events[1]: its `data`:"),
        (r#"{"kind":"x","data":1e999}"#, "events[1]: its `data`:"),
    ] {
        let (code, detail) = second(event);
        assert_eq!(code, Code::BadRequest, "{event}");
        assert!(detail.starts_with(expected), "{event}: {detail}");
    }
    let deep = format!(r#"{{"kind":"x","data":{}{}}}"#, "[".repeat(65), "]".repeat(65));
    assert!(second(&deep).1.contains("nested deeper than 64"));
    let long = format!(r#"{{"kind":"{}"}}"#, "k".repeat(95));
    assert!(second(&long).1.contains("longer than 100"));
    let large = format!(r#"{{"kind":"x","data":"{}"}}"#, "d".repeat(LONGEST_DATA));
    assert_eq!(second(&large).0, Code::TooLarge);
}

#[test]
fn numbers_begin_with_one_and_have_no_gaps() {
    let numbered = |numbers: &[u64]| {
        let events: Vec<_> =
            numbers.iter().map(|n| format!(r#"{{"kind":"x","seq":{n}}}"#)).collect();
        read_events(format!("[{}]", events.join(",")).as_bytes())
    };
    assert_eq!(numbered(&[4, 5, 6]).unwrap().len(), 3);
    for wrong in [&[0][..], &[1, 1], &[1, 3], &[2, 1], &[u64::MAX, 0]] {
        assert!(numbered(wrong).unwrap_err().detail.contains("does not follow"), "{wrong:?}");
    }
}

#[test]
fn a_batch_has_a_bound() {
    let batch = |count: usize| format!("[{}]", vec![r#"{"kind":"x"}"#; count].join(","));
    assert_eq!(read_events(batch(MOST_EVENTS).as_bytes()).unwrap().len(), MOST_EVENTS);
    assert_eq!(refused(&batch(MOST_EVENTS + 1)).0, Code::TooLarge);
    assert!(refused(r#"{"events":[],"x":1}"#).1.contains("`x` is not known beside `events`"));
}

#[test]
fn particulars_are_stored_on_one_line() {
    let body = "{\"kind\":\"x\",\"data\":{\r\n  \"a\": \"b\\nc\"\n}}";
    assert_eq!(read_events(body.as_bytes()).unwrap()[0].data, "{    \"a\": \"b\\nc\" }");
}

/// A body that is nearly right: what is generated, with some bytes changed.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        Just("agent.completed".to_owned()),
        Just("task.failed".to_owned()),
        "[a-z.\\\\\"\u{0}-\u{20}é]{0,12}",
    ];
    let data = prop_oneof![
        Just("{}".to_owned()),
        Just("[[[{\"a\":\"\\ud83d\\ude00\"}]]]".to_owned()),
        Just("\"\\ud800\"".to_owned()),
        Just("1e400".to_owned()),
        "[\\[\\]{}\":,0-9a-z\\\\\n ]{0,40}",
    ];
    let event = (kind, proptest::option::of(0..5_u64), data).prop_map(|(kind, seq, data)| {
        let seq = seq.map_or(String::new(), |seq| format!(",\"seq\":{seq}"));
        format!("{{\"kind\":\"{kind}\"{seq},\"data\":{data}}}")
    });
    let body = proptest::collection::vec(event, 0..4).prop_map(|events| events.join(","));
    let wrapped = (body, 0..3_u8).prop_map(|(body, shape)| match shape {
        0 => body,
        1 => format!("[{body}]"),
        _ => format!("{{\"events\":[{body}]}}"),
    });
    (wrapped, proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3))
        .prop_map(|(body, changes)| {
            let mut bytes = body.into_bytes();
            for (at, byte) in changes {
                if !bytes.is_empty() {
                    let index = at.index(bytes.len());
                    bytes[index] = byte;
                }
            }
            bytes
        })
}

/// Whatever is taken keeps to every bound, and can be told again.
fn judge(body: &[u8]) {
    let events = match read_events(body) {
        Ok(events) => events,
        Err(problem) => {
            assert!(matches!(problem.code, Code::BadRequest | Code::TooLarge));
            return;
        }
    };
    assert!(events.len() <= MOST_EVENTS);
    for pair in events.windows(2) {
        assert_eq!(pair[1].seq, pair[0].seq.map(|seq| seq + 1));
    }
    for event in &events {
        assert!(event.kind.name().starts_with(PREFIX) && event.kind.name().len() <= LONGEST_NAME);
        assert!(!event.kind.name().contains(char::is_control));
        assert!(event.data.len() <= LONGEST_DATA && !event.data.contains(['\n', '\r']));
        serde_json::from_str::<serde_json::Value>(&event.data).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn noise_is_refused_or_sound(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        judge(&body);
    }

    #[test]
    fn bodies_that_are_nearly_right_are_refused_or_sound(body in nearly()) {
        judge(&body);
    }
}
