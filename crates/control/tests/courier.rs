//! The courier against real sockets on the loopback address: what it takes for delivered, what it
//! refuses to reach, and how long it waits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use belay_control::{Courier, HttpCourier, Parcel, Undelivered};
use belay_kernel::Span;

/// A request that a receiver got: its head, and its body.
type Got = (String, Vec<u8>);

fn read(stream: &TcpStream) -> Option<Got> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line.to_lowercase());
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length?.trim().parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// A receiver that does this with every connection.
fn receiver(
    act: impl Fn(TcpStream, &mpsc::Sender<Got>) + Send + 'static,
) -> (SocketAddr, mpsc::Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            act(stream.unwrap(), &tell);
        }
    });
    (address, told)
}

fn answering(answer: &'static str) -> (SocketAddr, mpsc::Receiver<Got>) {
    receiver(move |mut stream, tell| {
        while let Some(got) = read(&stream) {
            tell.send(got).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    })
}

fn courier(allowed: &[&str]) -> HttpCourier {
    HttpCourier::new(allowed.iter().map(|text| text.parse().unwrap()).collect()).unwrap()
}

fn parcel(url: String) -> Parcel {
    let headers = vec![("belay-delivery", "one".to_owned())];
    Parcel { url, headers, body: b"{\"a\":1}".to_vec(), limit: Duration::from_millis(800) }
}

fn failure(went: Result<(), Undelivered>) -> String {
    went.unwrap_err().failure
}

#[tokio::test]
async fn what_is_answered_with_success_is_delivered() {
    let (address, told) = answering("HTTP/1.1 204 No Content\r\n\r\n");
    let courier = courier(&["127.0.0.1"]);
    courier.send(parcel(format!("http://{address}/in?x=1"))).await.unwrap();
    let (head, body) = told.recv().unwrap();
    assert!(head.starts_with("post /in?x=1 http/1.1"), "{head}");
    assert!(head.contains("belay-delivery: one"), "{head}");
    assert_eq!(body, b"{\"a\":1}");
}

#[tokio::test]
async fn loopback_and_private_addresses_are_refused_unless_allowed() {
    let (address, told) = answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let port = address.port();
    let closed = courier(&["10.0.0.0/8"]);
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.1:{port}/"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://192.168.1.1/".to_owned(),
        "http://[fe80::1]/".to_owned(),
    ] {
        assert!(closed.check(&url).is_err(), "{url}");
        let says = failure(closed.send(parcel(url.clone())).await);
        assert!(says.contains("webhook_allow"), "{url}: {says}");
    }
    // A name tells nothing: it is judged by what it is resolved to, when it is connected to.
    let url = format!("http://localhost:{port}/");
    assert_eq!(closed.check(&url), Ok(()));
    let says = failure(closed.send(parcel(url.clone())).await);
    assert!(says.contains("loopback"), "{says}");
    assert!(told.try_recv().is_err(), "nobody was reached");
    courier(&["127.0.0.0/8"]).send(parcel(url)).await.unwrap();
    assert!(told.recv().is_ok());
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (inside, told) = answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let to =
        format!("HTTP/1.1 302 Found\r\nlocation: http://{inside}/\r\ncontent-length: 0\r\n\r\n");
    let (address, _told) = answering(Box::leak(to.into_boxed_str()));
    let says = failure(courier(&["127.0.0.1"]).send(parcel(format!("http://{address}/"))).await);
    assert_eq!(says, "it answered 302: redirects are not followed");
    assert!(told.try_recv().is_err());
}

#[tokio::test]
async fn failures_are_told_apart_and_hold_no_address() {
    let courier = courier(&["127.0.0.1"]);
    let (address, _told) = answering("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n");
    let says = failure(courier.send(parcel(format!("http://{address}/secret"))).await);
    assert_eq!(says, "it answered 500");
    let busy = "HTTP/1.1 429 Slow\r\nretry-after: 17\r\ncontent-length: 0\r\n\r\n";
    let (address, _told) = answering(busy);
    let went = courier.send(parcel(format!("http://{address}/secret"))).await.unwrap_err();
    assert_eq!(went.retry_after, Some(Span::from_secs(17)));
    let (address, _told) = receiver(|stream, _| drop(read(&stream)));
    let says = failure(courier.send(parcel(format!("http://{address}/secret"))).await);
    assert_eq!(says, "the connection broke before an answer");
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let says = failure(courier.send(parcel(format!("http://{unused}/secret"))).await);
    assert_eq!(says, "no connection");
    for url in ["", "secret", "ftp://example.org/", "file:///etc/passwd", "http://"] {
        assert!(courier.check(url).is_err(), "{url}");
    }
}

#[tokio::test]
async fn a_receiver_that_hangs_or_is_late_is_not_waited_for() {
    let (quiet, told) = mpsc::channel::<TcpStream>();
    let (address, _told) = receiver(move |stream, _| {
        drop(read(&stream));
        // It is kept open, and nothing is ever said.
        quiet.send(stream).unwrap();
    });
    let began = Instant::now();
    let courier = courier(&["127.0.0.1"]);
    let says = failure(courier.send(parcel(format!("http://{address}/"))).await);
    assert_eq!(says, "no answer within 800ms");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(told.try_recv().is_ok());
}
