//! The socket for agents in containers: where it is, who finds it, and that the next server is
//! found at the same place.

#[path = "support/fake.rs"]
mod fake;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use belay_api::{Client, ClientError, NewQuestion};
use belay_server::{AGENT_SOCKET, Access, Listener, serve};
use fake::{ATTEMPT, Fake, RUNNING};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server that listens in a directory until it is told to stop.
struct Served {
    stop: oneshot::Sender<()>,
    served: JoinHandle<std::io::Result<()>>,
}

impl Served {
    fn new(directory: &Path, fake: &Fake) -> Self {
        let (stop, stopped) = oneshot::channel();
        let listener = Listener::for_agents(directory).unwrap();
        let stopped = async { drop(stopped.await) };
        let served = tokio::spawn(serve(listener, fake.clone(), Access::for_agents(), stopped));
        Self { stop, served }
    }

    async fn ends(self) {
        self.stop.send(()).unwrap();
        self.served.await.unwrap().unwrap();
    }
}

fn client(directory: &Path) -> Client {
    Client::new(&format!("unix:{}", directory.join(AGENT_SOCKET).display()), ATTEMPT)
}

async fn ask(client: &Client) -> Result<(), ClientError> {
    let question = NewQuestion { text: "Which?".into(), options: Vec::new() };
    client.ask(&question).await.map(drop)
}

#[track_caller]
fn nobody_listens(asked: Result<(), ClientError>) {
    match asked {
        Err(ClientError::Unanswered(unanswered)) => assert!(unanswered.nobody_listens()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_client_finds_the_next_server_at_the_same_place() {
    let (place, fake) = (tempfile::tempdir().unwrap(), Fake::new(&[RUNNING]));
    let directory = place.path().join("agents");
    let client = client(&directory);
    nobody_listens(ask(&client).await);
    let mut inodes = Vec::new();
    for _ in 0..3 {
        let served = Served::new(&directory, &fake);
        ask(&client).await.unwrap();
        inodes.push(fs::metadata(directory.join(AGENT_SOCKET)).unwrap().ino());
        served.ends().await;
        nobody_listens(ask(&client).await);
    }
    assert_eq!(fake.calls().len(), 3, "{:?}", fake.calls());
    assert!(inodes[0] != inodes[1], "each server makes a socket of its own");
    assert_eq!(client.url(), format!("unix:{}", directory.join(AGENT_SOCKET).display()));
}

#[tokio::test]
async fn any_user_may_connect_and_none_but_the_owner_may_change_the_directory() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("agents");
    // What a server left that fell while it made its socket, and a directory that was closed.
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(directory.join("belay.sock.making"), "").unwrap();
    let served = Served::new(&directory, &Fake::new(&[RUNNING]));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&directory), 0o755);
    assert_eq!(mode(&directory.join(AGENT_SOCKET)), 0o666);
    let there: Vec<_> = fs::read_dir(&directory).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(there, [AGENT_SOCKET], "nothing else is shown to agents");
    served.ends().await;
}

#[tokio::test]
async fn a_directory_may_lie_deeper_than_the_name_of_a_socket_is_long() {
    let place = tempfile::tempdir().unwrap();
    let deep = place.path().join("x".repeat(200)).join("agents");
    fs::create_dir_all(&deep).unwrap();
    let served = Served::new(&deep, &Fake::new(&[RUNNING]));
    // As a container sees it: somewhere else, by a short name.
    let short = place.path().join("agents");
    symlink(&deep, &short).unwrap();
    ask(&client(&short)).await.unwrap();
    served.ends().await;
}
