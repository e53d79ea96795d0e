//! The tools as MCP sees them: what each is called, says of itself and takes, and who is offered
//! which.

use std::borrow::Cow;
use std::future::Future;

use rmcp::handler::server::tool::schema_for_input;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Extensions, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as Described, ToolAnnotations,
};
use rmcp::schemars::JsonSchema;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::backend::Backend;
use super::{call, inputs};

/// What a caller is offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// Tasks and their verbs: for people's assistants.
    People,
    /// The same without what changes anything: for tokens that may only look.
    Looking,
    /// An agent's own.
    Agent {
        /// Whether the agent has a tool `ask_user` of its own that hides ours, so that ours needs
        /// another name.
        ask_person: bool,
    },
}

/// Who calls: what it is offered, and what its calls act through.
#[derive(Clone, Debug)]
pub struct Caller<B> {
    /// What it is offered.
    pub offer: Offer,
    /// What its calls act through.
    pub backend: B,
}

/// Where the tools are offered.
pub trait Host: Send + Sync + 'static {
    /// What calls act through.
    type Backend: Backend;

    /// Who makes this request.
    fn caller(
        &self,
        request: &Extensions,
    ) -> impl Future<Output = Result<Caller<Self::Backend>, ErrorData>> + Send;
}

/// A tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tool {
    CreateTask,
    ListTasks,
    GetTask,
    ContinueTask,
    StopTask,
    AnswerQuestion,
    AcceptTask,
    RejectTask,
    AskUser,
    ReportProgress,
    SubmitResult,
    AddSubtask,
}

/// The other name of `ask_user`.
const ASK_PERSON: &str = "ask_person";

impl Tool {
    const PEOPLE: [Self; 8] = [
        Self::CreateTask,
        Self::ListTasks,
        Self::GetTask,
        Self::ContinueTask,
        Self::StopTask,
        Self::AnswerQuestion,
        Self::AcceptTask,
        Self::RejectTask,
    ];
    const LOOKING: [Self; 2] = [Self::ListTasks, Self::GetTask];
    const AGENT: [Self; 4] =
        [Self::AskUser, Self::ReportProgress, Self::SubmitResult, Self::AddSubtask];

    const fn offered(offer: Offer) -> &'static [Self] {
        match offer {
            Offer::People => &Self::PEOPLE,
            Offer::Looking => &Self::LOOKING,
            Offer::Agent { .. } => &Self::AGENT,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::CreateTask => "create_task",
            Self::ListTasks => "list_tasks",
            Self::GetTask => "get_task",
            Self::ContinueTask => "continue_task",
            Self::StopTask => "stop_task",
            Self::AnswerQuestion => "answer_question",
            Self::AcceptTask => "accept_task",
            Self::RejectTask => "reject_task",
            Self::AskUser => "ask_user",
            Self::ReportProgress => "report_progress",
            Self::SubmitResult => "submit_result",
            Self::AddSubtask => "add_subtask",
        }
    }

    /// The tool of this name; `ask_user` has two.
    fn named(name: &str) -> Option<Self> {
        let mut all = Self::PEOPLE.into_iter().chain(Self::AGENT);
        if name == ASK_PERSON { Some(Self::AskUser) } else { all.find(|tool| tool.name() == name) }
    }

    const fn says(self) -> &'static str {
        match self {
            Self::CreateTask => {
                "Give an AI coding agent a task, which it does unattended in a sandbox. Answers \
                 at once with the task, whose id the other tools take; look at it with get_task."
            }
            Self::ListTasks => "List tasks, newest first.",
            Self::GetTask => {
                "Show a task: its state and why, its attempts, open questions, progress, the \
                 summary of its work, and what can be done with it now."
            }
            Self::ContinueTask => {
                "Follow a task that is over with a new one in the same session, on the same branch."
            }
            Self::StopTask => {
                "Stop a task for good. Answers with a receipt once its processes are proven gone."
            }
            Self::AnswerQuestion => {
                "Answer the question that a task's agent has asked. Only with the person's own \
                 answer: ask them first."
            }
            Self::AcceptTask => {
                "Accept the work of a task that is READY, after the person has said so."
            }
            Self::RejectTask => "Send the work of a task that is READY back, with a comment.",
            Self::AskUser => {
                "Ask the person who gave you this task, and wait for the answer. Ask when only \
                 they can decide; the answer may take long. Call it again with the same words if \
                 the call breaks off: it is the same question."
            }
            Self::ReportProgress => {
                "Say in a sentence how far you are. The person sees it at once, and long silent \
                 work is not taken for a hang."
            }
            Self::SubmitResult => {
                "Hand in what came of your work, as Markdown. Call it when you are done; what you \
                 hand in last counts."
            }
            Self::AddSubtask => {
                "Make a subtask, which another agent does in its own sandbox and branch, from your \
                 last commit. Your task is complete only when its subtasks are."
            }
        }
    }

    /// What an assistant may be told about it: looks only, or cannot be taken back.
    fn hints(self) -> ToolAnnotations {
        let (looks, final_) = match self {
            Self::ListTasks | Self::GetTask => (true, false),
            Self::StopTask | Self::AcceptTask => (false, true),
            _ => (false, false),
        };
        ToolAnnotations::new().read_only(looks).destructive(final_).open_world(false)
    }

    fn described(self, offer: Offer) -> Described {
        let schema = match self {
            Self::CreateTask => schema::<inputs::CreateTask>(),
            Self::ListTasks => schema::<inputs::ListTasks>(),
            Self::GetTask | Self::StopTask => schema::<inputs::Which>(),
            Self::ContinueTask => schema::<inputs::ContinueTask>(),
            Self::AnswerQuestion => schema::<inputs::AnswerQuestion>(),
            Self::AcceptTask => schema::<inputs::AcceptTask>(),
            Self::RejectTask => schema::<inputs::RejectTask>(),
            Self::AskUser => schema::<inputs::AskUser>(),
            Self::ReportProgress => schema::<inputs::ReportProgress>(),
            Self::SubmitResult => schema::<inputs::SubmitResult>(),
            Self::AddSubtask => schema::<inputs::AddSubtask>(),
        };
        let name = match (self, offer) {
            (Self::AskUser, Offer::Agent { ask_person: true }) => ASK_PERSON,
            _ => self.name(),
        };
        Described::new(name, self.says(), schema).with_annotations(self.hints())
    }
}

fn schema<T: JsonSchema + 'static>() -> std::sync::Arc<rmcp::model::JsonObject> {
    // Every input is an object, so none is refused.
    schema_for_input::<T>().unwrap_or_default()
}

/// The tools, offered by a host.
#[derive(Clone, Debug)]
pub struct Tools<H> {
    host: H,
}

impl<H: Host> Tools<H> {
    /// The tools, offered by `host`.
    pub const fn new(host: H) -> Self {
        Self { host }
    }
}

impl<H: Host> ServerHandler for Tools<H> {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("belay", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(
            "Belay runs AI coding agents unattended and makes every stop final. A task goes from \
             QUEUED to RUNNING; BLOCKED waits for an answer or for subtasks, READY for a person's \
             accept or reject."
                .into(),
        );
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let offer = self.host.caller(&context.extensions).await?.offer;
        let tools = Tool::offered(offer).iter().map(|tool| tool.described(offer));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = self.host.caller(&context.extensions).await?;
        let Some(tool) = Tool::named(&request.name) else {
            return Err(no_tool(&format!("there is no tool `{}`", request.name)));
        };
        if !Tool::offered(caller.offer).contains(&tool) {
            let needs = match tool {
                _ if Tool::AGENT.contains(&tool) => "the token of an attempt that runs",
                _ => "an operator's token",
            };
            return Err(no_tool(&format!("`{}` needs {needs}", tool.name())));
        }
        let arguments = request.arguments.unwrap_or_default();
        Ok(call::call(&caller.backend, tool, arguments, &context).await.into())
    }

    fn get_tool(&self, name: &str) -> Option<Described> {
        let tool = Tool::named(name)?;
        Some(tool.described(Offer::Agent { ask_person: name == ASK_PERSON }))
    }
}

fn no_tool(message: &str) -> ErrorData {
    ErrorData::invalid_params(Cow::Owned(message.to_owned()), None)
}
