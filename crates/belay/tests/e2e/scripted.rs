//! A program that speaks as Claude Code does, line by line, for what a plain command cannot say:
//! held questions, usage limits, a result without an exit.

/// A script in the making.
pub(crate) struct Scripted {
    script: String,
}

const SESSION: &str = "6f2c1f0e-0000-4000-8000-000000000001";

impl Scripted {
    /// It begins as Claude Code does: it reads the first message and says who it is.
    pub(crate) fn claude() -> Self {
        let awaits = "await() { while [ ! -e .git/$1 ]; do sleep 0.02; done; }\nread -r told\n";
        Self { script: awaits.to_owned() }.wakes()
    }

    /// It takes its first message, and begins no turn with it.
    pub(crate) fn dozing_claude() -> Self {
        Self { script: "read -r told\n".to_owned() }
    }

    /// Says who it is, with which a turn begins.
    pub(crate) fn wakes(self) -> Self {
        self.does(&format!(
            "echo '{{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"{SESSION}\"}}'"
        ))
    }

    /// Some commands.
    pub(crate) fn does(mut self, commands: &str) -> Self {
        self.script.push_str(&format!("{commands}\n"));
        self
    }

    /// Waits for a mark.
    pub(crate) fn awaits(self, mark: &str) -> Self {
        self.does(&format!("await {mark}"))
    }

    /// A question that is held until it is answered; the answer goes into a file.
    pub(crate) fn asks(self, question: &str, file: &str) -> Self {
        let request = serde_json::json!({
            "type": "control_request",
            "request_id": "r1",
            "request": {
                "subtype": "can_use_tool",
                "tool_name": "AskUserQuestion",
                "tool_use_id": "t1",
                "input": {"questions": [{
                    "question": question,
                    "header": "x",
                    "multiSelect": false,
                    "options": [
                        {"label": "red", "description": ""},
                        {"label": "teal", "description": ""},
                    ],
                }]},
            },
        });
        self.does(&format!(
            "echo '{request}'\nwhile read -r line; do case $line in *control_response*) \
             echo \"$line\" > {file}.part; mv {file}.part {file}; break;; esac; done"
        ))
    }

    /// The first attempt finds the account's allowance used up until that second.
    pub(crate) fn limited_until(self, second: u64) -> Self {
        let limit = serde_json::json!({
            "type": "rate_limit_event",
            "rate_limit_info": {"status": "rejected", "resetsAt": second},
            "session_id": SESSION,
        });
        let result = serde_json::json!({
            "type": "result", "subtype": "success", "is_error": true, "api_error_status": 429,
            "result": "You have hit your limit.", "session_id": SESSION,
        });
        self.does(&format!(
            "if [ $BELAY_ATTEMPT = 1 ]; then echo '{limit}'; echo '{result}'; exit 1; fi"
        ))
    }

    /// A successful result.
    pub(crate) fn succeeds(self) -> Self {
        let result = serde_json::json!({
            "type": "result", "subtype": "success", "is_error": false, "result": "Done.",
            "session_id": SESSION, "total_cost_usd": 0.01,
            "usage": {"input_tokens": 10, "output_tokens": 1},
        });
        self.does(&format!("echo '{result}'"))
    }

    /// It never exits.
    pub(crate) fn stays(self) -> Self {
        self.does("trap '' TERM; while :; do sleep 1; done")
    }

    /// Makes a program of it.
    pub(crate) fn install(&self, path: &std::path::Path) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(path, format!("#!/bin/sh\n{}", self.script)).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The words of `belay run` for it.
    pub(crate) fn words<'a>(&'a self, prompt: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
        let program = ["--agent", "claude", "--", "sh", "-c", &self.script, "claude"];
        [&[prompt], flags, &program].concat()
    }
}
