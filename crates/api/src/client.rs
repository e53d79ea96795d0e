//! The typed client: what the command line, and any Rust program, speaks to a server with.

use std::time::Duration;

use belay_kernel::{QuestionId, TaskId};
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::attempt::{Asking, NewQuestion, Progress, Submission};
use crate::problem::{Code, Problem};
use crate::request::{Accept, Answer, Comment, Continue, ListTasks, NewTask, Resume, Stop};
use crate::token::{ListTokens, MadeToken, NewToken, TokenPage, TokenView};
use crate::view::{
    Backup, Events, Health, ReceiptView, Stopping, TaskPage, TaskView, TranscriptPiece, WhyView,
};
use crate::watch::{
    AlertList, EditWebhook, LetterPage, ListLetters, MadeWebhook, NewWebhook, Replayed,
    WebhookList, WebhookView,
};

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server says no.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// There is no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
}

/// No answer came, or none that can be read.
#[derive(Debug, thiserror::Error)]
#[error("no answer from {url}")]
pub struct Unanswered {
    url: String,
    #[source]
    source: reqwest::Error,
}

impl Unanswered {
    /// Whether nobody listens there, so that the request was certainly not taken.
    pub fn nobody_listens(&self) -> bool {
        self.source.is_connect()
    }
}

/// What is to be trusted cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("it is not a certificate as PEM")]
pub struct UnusableAuthority {
    #[source]
    source: Option<reqwest::Error>,
}

/// Speaks to one server.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    /// Where the server is, as we were told.
    url: String,
    /// What the addresses of requests begin with.
    base: String,
    token: String,
}

/// How long a request may take besides what it asks to wait.
const LIMIT: Duration = Duration::from_secs(30);

/// What the address of a socket of the file system begins with.
const UNIX: &str = "unix:";
/// Who is asked there, as HTTP wants it.
const BEHIND_SOCKET: &str = "http://localhost";

type Answered<T> = Result<T, ClientError>;

impl Client {
    /// A client of the server at `url`: `http://127.0.0.1:7425`, or `unix:/path/of/a/socket`.
    pub fn new(url: &str, token: &str) -> Self {
        // The HTTP library asks for it also where nothing is encrypted; the first one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // What is not encrypted needs nobody's certificate. The machine's own are not there in
        // every image; then nothing that is encrypted is believed.
        let plain = || builder(url).tls_certs_only([]).build();
        let built = match url.starts_with("https:") {
            true => builder(url).build().or_else(|_| plain()),
            false => plain(),
        };
        // Without proxies and certificates there is nothing that can fail to be built.
        Self::made(built.unwrap_or_default(), url, token)
    }

    /// The same, which trusts the certificates of `authorities` (as PEM) besides the machine's own.
    pub fn trusting(url: &str, token: &str, authorities: &[u8]) -> Result<Self, UnusableAuthority> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let certificates = reqwest::Certificate::from_pem_bundle(authorities);
        let unusable = |source: Option<reqwest::Error>| UnusableAuthority { source };
        let certificates = certificates.map_err(|error| unusable(Some(error)))?;
        if certificates.is_empty() {
            return Err(unusable(None));
        }
        let builder = builder(url).tls_certs_merge(certificates);
        let http = builder.build().map_err(|error| unusable(Some(error)))?;
        Ok(Self::made(http, url, token))
    }

    fn made(http: reqwest::Client, url: &str, token: &str) -> Self {
        let url = url.trim_end_matches('/').to_owned();
        let base = if url.starts_with(UNIX) { BEHIND_SOCKET.to_owned() } else { url.clone() };
        Self { http, url, base, token: token.to_owned() }
    }

    /// Where the server is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether the server is well.
    pub async fn health(&self) -> Answered<Health> {
        self.get("/api/v1/health", &()).await
    }

    /// Makes a task.
    pub async fn create(&self, task: &NewTask, key: Option<&str>) -> Answered<TaskView> {
        self.post("/api/v1/tasks", task, key).await
    }

    /// Lists tasks.
    pub async fn list(&self, which: &ListTasks) -> Answered<TaskPage> {
        self.get("/api/v1/tasks", which).await
    }

    /// Shows a task; `id` may be shortened to what is unique.
    pub async fn show(&self, id: &str) -> Answered<TaskView> {
        self.get(&format!("/api/v1/tasks/{}", segment(id)), &()).await
    }

    /// Explains a task.
    pub async fn why(&self, id: &str) -> Answered<WhyView> {
        self.get(&format!("/api/v1/tasks/{}/why", segment(id)), &()).await
    }

    /// Queues a task that waits for it.
    pub async fn run(&self, id: &str, key: Option<&str>) -> Answered<TaskView> {
        self.verb(id, "run", &(), key).await
    }

    /// Stops a task, and waits for the receipt.
    pub async fn stop(&self, id: &str, wait: Duration, key: Option<&str>) -> Answered<Stopping> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.verb(id, "stop", &Stop { wait_ms }, key).await
    }

    /// Cancels a task, and does not wait.
    pub async fn cancel(&self, id: &str, key: Option<&str>) -> Answered<Stopping> {
        self.verb(id, "cancel", &Stop::default(), key).await
    }

    /// The receipt of a stop.
    pub async fn receipt(&self, id: &str) -> Answered<ReceiptView> {
        self.get(&format!("/api/v1/tasks/{}/receipt", segment(id)), &()).await
    }

    /// Answers a question.
    pub async fn answer(&self, id: &str, a: &Answer, key: Option<&str>) -> Answered<TaskView> {
        self.verb(id, "answer", a, key).await
    }

    /// Takes the work.
    pub async fn accept(&self, id: &str, a: &Accept, key: Option<&str>) -> Answered<TaskView> {
        self.verb(id, "accept", a, key).await
    }

    /// Sends the work back.
    pub async fn reject(&self, id: &str, c: &Comment, key: Option<&str>) -> Answered<TaskView> {
        self.verb(id, "reject", c, key).await
    }

    /// Begins again, from the base.
    pub async fn retry(&self, id: &str, key: Option<&str>) -> Answered<TaskView> {
        self.verb(id, "retry", &Resume::default(), key).await
    }

    /// Goes on where it was. A task that is over is followed by a new one, which is answered.
    pub async fn resume(&self, id: &str, r: &Resume, key: Option<&str>) -> Answered<TaskView> {
        self.verb(id, "resume", r, key).await
    }

    /// Follows a task that is over with a new one in the same session.
    pub async fn follow(&self, id: &str, c: &Continue, key: Option<&str>) -> Answered<TaskView> {
        self.verb(id, "continue", c, key).await
    }

    /// Removes a task and what is kept of it.
    pub async fn delete(&self, id: &str) -> Answered<()> {
        let request = self.request(Method::DELETE, &format!("/api/v1/tasks/{}", segment(id)));
        self.send(request.timeout(LIMIT)).await.map(drop)
    }

    /// Makes a token; it is told this once.
    pub async fn create_token(&self, new: &NewToken, key: &str) -> Answered<MadeToken> {
        self.post("/api/v1/tokens", new, Some(key)).await
    }

    /// Lists tokens, newest first.
    pub async fn tokens(&self, which: &ListTokens) -> Answered<TokenPage> {
        self.get("/api/v1/tokens", which).await
    }

    /// Revokes a token, by its id or its name.
    pub async fn revoke_token(&self, named: &str, key: &str) -> Answered<TokenView> {
        let path = format!("/api/v1/tokens/{}", segment(named));
        let request = self.request(Method::DELETE, &path).header("idempotency-key", key);
        self.json(request.timeout(LIMIT)).await
    }

    /// Events after `cursor`, of one task if it is named: at once if there are any, else after at
    /// most `wait`.
    pub async fn events(
        &self,
        task: Option<TaskId>,
        cursor: Option<&str>,
        wait: Duration,
    ) -> Answered<Events> {
        let path = match task {
            Some(task) => format!("/api/v1/tasks/{task}/events"),
            None => "/api/v1/events".to_owned(),
        };
        let wait_ms = wait.as_millis().to_string();
        let mut query = vec![("wait_ms", wait_ms.as_str())];
        query.extend(cursor.map(|cursor| ("after", cursor)));
        let request = self.request(Method::GET, &path).query(&query).timeout(LIMIT + wait);
        self.json(request).await
    }

    /// A piece of a transcript: at once if there is any, else after at most `wait`.
    pub async fn transcript(
        &self,
        id: &str,
        attempt: Option<u32>,
        from: u64,
        wait: Duration,
    ) -> Answered<TranscriptPiece> {
        let path = format!("/api/v1/tasks/{}/transcript", segment(id));
        let mut query = vec![("from", from.to_string()), ("wait_ms", wait.as_millis().to_string())];
        query.extend(attempt.map(|attempt| ("attempt", attempt.to_string())));
        let request = self.request(Method::GET, &path).query(&query).timeout(LIMIT + wait);
        let response = self.send(request).await?;
        let header = |name: &str| response.headers().get(name)?.to_str().ok()?.parse::<u64>().ok();
        let attempt = header("belay-attempt").and_then(|number| u32::try_from(number).ok());
        let (from, ended) = (header("belay-from"), header("belay-ended") == Some(1));
        let bytes = response.bytes().await.map_err(|source| self.unanswered(source))?.to_vec();
        let attempt = belay_kernel::AttemptNumber(attempt.unwrap_or(0));
        Ok(TranscriptPiece { attempt, from: from.unwrap_or(0), bytes, ended })
    }

    /// What an attempt changed, as a patch.
    pub async fn diff(&self, id: &str, attempt: Option<u32>) -> Answered<Vec<u8>> {
        let path = format!("/api/v1/tasks/{}/diff", segment(id));
        let query: Vec<_> = attempt.map(|number| ("attempt", number)).into_iter().collect();
        let request = self.request(Method::GET, &path).query(&query).timeout(LIMIT);
        let response = self.send(request).await?;
        Ok(response.bytes().await.map_err(|source| self.unanswered(source))?.to_vec())
    }

    /// Asks the person, for the attempt whose token this client has. The same words are the same
    /// question until its answer was handed over.
    pub async fn ask(&self, ask: &NewQuestion) -> Answered<Asking> {
        self.post("/api/v1/attempt/questions", ask, None).await
    }

    /// How a question of the attempt stands: at once if it is answered, else after at most `wait`.
    pub async fn await_answer(&self, question: QuestionId, wait: Duration) -> Answered<Asking> {
        let path = format!("/api/v1/attempt/questions/{question}");
        let query = [("wait_ms", wait.as_millis().to_string())];
        self.json(self.request(Method::GET, &path).query(&query).timeout(LIMIT + wait)).await
    }

    /// The agent has the answer.
    pub async fn handed_over(&self, question: QuestionId) -> Answered<()> {
        let path = format!("/api/v1/attempt/questions/{question}/handed-over");
        self.send(self.request(Method::POST, &path).timeout(LIMIT)).await.map(drop)
    }

    /// Tells how far the attempt is.
    pub async fn report_progress(&self, progress: &Progress) -> Answered<()> {
        let request = self.request(Method::POST, "/api/v1/attempt/progress").json(progress);
        self.send(request.timeout(LIMIT)).await.map(drop)
    }

    /// Tells what came of the attempt's work.
    pub async fn submit_result(&self, result: &Submission) -> Answered<()> {
        let request = self.request(Method::POST, "/api/v1/attempt/result").json(result);
        self.send(request.timeout(LIMIT)).await.map(drop)
    }

    /// Backs the database up, to a path on the server's machine.
    pub async fn backup(&self, path: &str) -> Answered<Backup> {
        let body = serde_json::json!({ "path": path });
        let request = self.request(Method::POST, "/api/v1/backup").json(&body);
        self.json(request.timeout(Duration::from_secs(600))).await
    }

    /// Every webhook.
    pub async fn webhooks(&self) -> Answered<WebhookList> {
        self.get("/api/v1/webhooks", &()).await
    }

    /// One webhook, by id or name.
    pub async fn webhook(&self, which: &str) -> Answered<WebhookView> {
        self.get(&hook(which, ""), &()).await
    }

    /// Makes a webhook.
    pub async fn make_webhook(&self, new: &NewWebhook) -> Answered<MadeWebhook> {
        self.post("/api/v1/webhooks", new, None).await
    }

    /// Changes a webhook, or pauses it.
    pub async fn edit_webhook(&self, which: &str, edit: &EditWebhook) -> Answered<WebhookView> {
        let request = self.request(Method::PATCH, &hook(which, "")).json(edit);
        self.json(request.timeout(LIMIT)).await
    }

    /// Removes a webhook.
    pub async fn remove_webhook(&self, which: &str) -> Answered<()> {
        let request = self.request(Method::DELETE, &hook(which, "")).timeout(LIMIT);
        self.send(request).await.map(drop)
    }

    /// Tries a webhook out.
    pub async fn test_webhook(&self, which: &str) -> Answered<WebhookView> {
        self.post(&hook(which, "/test"), &(), None).await
    }

    /// What a webhook was not told.
    pub async fn letters(&self, which: &str, asked: &ListLetters) -> Answered<LetterPage> {
        self.get(&hook(which, "/letters"), asked).await
    }

    /// Lets dead letters wait again: all, or one.
    pub async fn replay(&self, which: &str, number: Option<u64>) -> Answered<Replayed> {
        let path = match number {
            Some(number) => hook(which, &format!("/letters/{number}/replay")),
            None => hook(which, "/replay"),
        };
        self.post(&path, &(), None).await
    }

    /// Every alert.
    pub async fn alerts(&self) -> Answered<AlertList> {
        self.get("/api/v1/alerts", &()).await
    }

    async fn verb<B: Serialize, T: DeserializeOwned>(
        &self,
        id: &str,
        verb: &str,
        body: &B,
        key: Option<&str>,
    ) -> Answered<T> {
        self.post(&format!("/api/v1/tasks/{}/{verb}", segment(id)), body, key).await
    }

    async fn get<Q: Serialize, T: DeserializeOwned>(&self, path: &str, query: &Q) -> Answered<T> {
        self.json(self.request(Method::GET, path).query(query).timeout(LIMIT)).await
    }

    async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
        key: Option<&str>,
    ) -> Answered<T> {
        let mut request = self.request(Method::POST, path).json(body).timeout(LIMIT * 4);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.json(request).await
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token)
    }

    async fn json<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> Answered<T> {
        let response = self.send(request).await?;
        Ok(response.json().await.map_err(|source| self.unanswered(source))?)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Answered<reqwest::Response> {
        let response = request.send().await.map_err(|source| self.unanswered(source))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await.unwrap_or_default();
        Err(serde_json::from_str::<Problem>(&text)
            .unwrap_or_else(|_| unknown_problem(status, &text))
            .into())
    }

    fn unanswered(&self, source: reqwest::Error) -> Unanswered {
        Unanswered { url: self.url.clone(), source: source.without_url() }
    }
}

fn builder(url: &str) -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(5));
    match url.strip_prefix(UNIX) {
        Some(path) => builder.unix_socket(path),
        None => builder,
    }
}

/// An answer that is no problem document: not from Belay, or from something before it.
fn unknown_problem(status: StatusCode, text: &str) -> Problem {
    let text: String = text.chars().take(200).collect();
    let code = if status.is_server_error() { Code::Unavailable } else { Code::BadRequest };
    let detail = format!("the server answered {status} without a reason: {text}");
    Problem { status: status.as_u16(), ..Problem::new(code, detail) }
}

/// The path of a webhook.
fn hook(which: &str, rest: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let name: String = which.chars().filter(plain).take(64).collect();
    let name = if name.trim_matches('.').is_empty() { "-" } else { name.as_str() };
    format!("/api/v1/webhooks/{name}{rest}")
}

/// A path segment out of what a person typed: nothing in it can reach another route, and nothing is
/// left out, which could make it the name of something else.
fn segment(text: &str) -> String {
    let mut id = String::new();
    for byte in text.bytes().take(64) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => id.push(char::from(byte)),
            _ => id.push_str(&format!("%{byte:02X}")),
        }
    }
    if id.is_empty() { "-".to_owned() } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_typed_stays_what_it_is_and_where_it_is() {
        for (typed, sent) in [
            ("3kf9", "3kf9"),
            ("3k!f9", "3k%21f9"),
            ("../x", "%2E%2E%2Fx"),
            ("ä", "%C3%A4"),
            ("", "-"),
        ] {
            assert_eq!(segment(typed), sent);
        }
    }
}
