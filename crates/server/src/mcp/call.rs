//! One call of a tool: its arguments are read, it is done, and told as a result. What is refused is
//! a result too, marked as an error, so that whoever called can read why and do better.

use belay_api::{Code, Problem};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use rmcp::service::RequestContext;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::backend::Backend;
use super::tools::Tool;
use super::{agents, people};

/// What a call comes to.
pub(super) type Called = Result<CallToolResult, Problem>;

/// Calls a tool.
pub(super) async fn call<B: Backend>(
    backend: &B,
    tool: Tool,
    arguments: JsonObject,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let called = match tool {
        Tool::CreateTask => people::create(backend, arguments).await,
        Tool::ListTasks => people::list(backend, arguments).await,
        Tool::GetTask => people::get(backend, arguments).await,
        Tool::ContinueTask => people::follow(backend, arguments).await,
        Tool::StopTask => people::stop(backend, arguments).await,
        Tool::AnswerQuestion => people::answer(backend, arguments).await,
        Tool::AcceptTask => people::accept(backend, arguments).await,
        Tool::RejectTask => people::reject(backend, arguments).await,
        Tool::AskUser => agents::ask(backend, arguments, context).await,
        Tool::ReportProgress => agents::report_progress(backend, arguments).await,
        Tool::SubmitResult => agents::submit_result(backend, arguments).await,
        Tool::AddSubtask => agents::add_subtask(backend, arguments).await,
    };
    called.unwrap_or_else(|problem| refused(&problem))
}

/// The arguments of a call, as the tool takes them.
pub(super) fn read<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, Problem> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        Problem::new(Code::BadRequest, format!("the arguments are not what is taken: {error}"))
    })
}

/// A result that is data.
pub(super) fn data<T: Serialize>(value: &T) -> Called {
    match serde_json::to_value(value) {
        Ok(value) => Ok(CallToolResult::structured(value)),
        Err(error) => {
            let detail = format!("the answer cannot be told: {error}");
            Err(Problem::new(Code::Internal, detail))
        }
    }
}

/// A result that is a sentence. Some clients take a text that is JSON for more than it is, so it
/// never begins with somebody's words.
pub(super) fn sentence(text: impl Into<String>) -> Called {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
}

fn refused(problem: &Problem) -> CallToolResult {
    let mut text = format!("{}: {}", problem.code.name(), problem.detail);
    if !problem.choices.is_empty() {
        text = format!("{text} (instead: {})", problem.choices.join(", "));
    }
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({
        "code": problem.code, "detail": problem.detail, "choices": problem.choices,
    }));
    result
}
