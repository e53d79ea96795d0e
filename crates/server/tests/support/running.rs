//! A server through a real socket, for tests; each uses a part.
#![allow(dead_code)]

use std::net::SocketAddr;

use belay_api::{Client, Code, Problem};
use belay_server::{Access, Token, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::fake::Fake;

/// A server on a port of its own.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: Option<oneshot::Sender<()>>,
    pub(crate) served: JoinHandle<std::io::Result<()>>,
}

/// Starts one.
pub(crate) async fn start(fake: &Fake) -> Running {
    start_with(fake, |access| access).await
}

/// Starts one that is reached otherwise.
pub(crate) async fn start_with(fake: &Fake, reached: impl FnOnce(Access) -> Access) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let access = reached(Access::new(Token::new("secret"), address).known_as("belay.test"));
    let stopped = async {
        let _ = stopped.await;
    };
    let served = tokio::spawn(serve(listener, fake.clone(), access, stopped));
    Running { address, stop: Some(stop), served }
}

impl Running {
    /// A client with the installation's token.
    pub(crate) fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.address), "secret")
    }

    /// Sends a request as it is and reads the whole answer: status, headers, body.
    pub(crate) async fn raw(&self, head: &str, body: &[u8]) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!("{head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server that refuses early may close before everything is sent.
        let _ = stream.write_all(body).await;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let text = String::from_utf8(answer).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase(), body.to_owned())
    }

    /// The same, with the installation's token.
    pub(crate) async fn with_token(&self, line: &str, body: &[u8]) -> (u16, String, String) {
        let head = format!("{line}\r\nHost: localhost\r\nAuthorization: Bearer secret");
        self.raw(&head, body).await
    }
}

/// What a problem document says: its status, in both places, and its code.
pub(crate) fn problem(answer: &(u16, String, String)) -> (u16, Code) {
    let (status, head, body) = answer;
    assert!(head.contains("content-type: application/problem+json"), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    let document: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(document["status"], *status);
    assert!(document["type"].as_str().unwrap().starts_with("urn:belay:problem:"), "{body}");
    assert!(document["title"].is_string() && document["detail"].is_string(), "{body}");
    let problem: Problem = serde_json::from_str(body).unwrap();
    (*status, problem.code)
}
