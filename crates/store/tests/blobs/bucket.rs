//! What can only go wrong over a network.

use std::time::{Duration, Instant};

use belay_store::blob::{BlobHash, BlobLimits, Blobs, S3Config, S3Credentials};

use crate::server::{Fault, Server};
use crate::world::{LIMITS, fresh, pattern, read_all, s3};

async fn open(config: &S3Config) -> Result<Blobs, belay_store::blob::BlobError> {
    Blobs::in_bucket(config, LIMITS).await
}

/// Every request of a blob's life goes wrong three times in the ways given before it succeeds.
async fn survives(faults: [Fault; 3]) {
    let server = Server::start().await;
    let blobs = open(&s3(&server)).await.unwrap();
    let key = fresh();
    let mut at = 0;
    for size in [10, 3_000, 500, 7] {
        server.inject(faults);
        let bytes = pattern(at, at + size);
        assert_eq!(blobs.append(key, at, bytes).await.unwrap(), at + size);
        at += size;
        assert_eq!(server.faults_left(), 0);
    }
    server.inject(faults);
    assert_eq!(read_all(&blobs, key).await.unwrap(), pattern(0, at));
    server.inject(faults);
    let seal = blobs.seal(key, at).await.unwrap();
    assert_eq!(seal.hash, BlobHash::of(&pattern(0, at)));
    server.inject(faults);
    assert_eq!(read_all(&open(&s3(&server)).await.unwrap(), key).await.unwrap(), pattern(0, at));
    server.inject(faults);
    assert!(blobs.delete(key).await.unwrap());
    assert_eq!(server.faults_left(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_server_is_asked_again() {
    survives([Fault::Unavailable; 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_connection_is_opened_again() {
    survives([Fault::Reset; 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_but_not_answered_is_recognised() {
    survives([Fault::LostReply; 3]).await;
}

/// Each request of sealing and deleting is the one that is cut off, in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_single_cut_harms_a_seal() {
    let server = Server::start().await;
    for cut in 0..14 {
        for fault in [Fault::Reset, Fault::LostReply, Fault::Unavailable] {
            let blobs = open(&s3(&server)).await.unwrap();
            let key = fresh();
            for part in 0..5 {
                blobs.append(key, part * 9, pattern(part * 9, part * 9 + 9)).await.unwrap();
            }
            server.inject([Fault::None].repeat(cut).into_iter().chain([fault]));
            let seal = blobs.seal(key, 45).await.unwrap();
            assert_eq!(seal.hash, BlobHash::of(&pattern(0, 45)), "request {cut} {fault:?}");
            assert_eq!(read_all(&blobs, key).await.unwrap(), pattern(0, 45));
            while server.faults_left() > 0 {
                let _ = blobs.status(key).await; // Uses up what the seal did not reach.
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stays_away_is_given_up_at_the_deadline() {
    let server = Server::start().await;
    let config = S3Config { deadline: Duration::from_millis(1_500), ..s3(&server) };
    let blobs = open(&config).await.unwrap();
    let key = fresh();
    blobs.append(key, 0, &b"here"[..]).await.unwrap();
    for fault in [Fault::Unavailable, Fault::Reset] {
        let (asked, began) = (server.requests(), Instant::now());
        server.inject([fault].repeat(1_000));
        let error = blobs.append(key, 4, &b"lost"[..]).await.unwrap_err();
        assert_eq!(error.code(), "blob_unreachable", "{error:?}");
        assert!(error.to_string().ends_with("did not answer properly within 1s"), "{error}");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(8), "{took:?}");
        let asked = server.requests() - asked;
        assert!((3..60).contains(&asked), "{asked} requests: the pauses grow");
        server.clear();
    }
    assert_eq!(blobs.append(key, 4, &b"found"[..]).await.unwrap(), 9, "it is back");
    assert_eq!(read_all(&blobs, key).await.unwrap(), b"herefound");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mistake_in_the_configuration_has_its_own_sentence() {
    let server = Server::start().await;
    let good = s3(&server);
    let wrong_key = |access: &str, secret: &str| {
        let credentials = S3Credentials { access_key: access.into(), secret_key: secret.into() };
        S3Config { credentials: Some(credentials), ..good.clone() }
    };
    let url = server.url();
    for (config, code, sentence) in [
        (
            S3Config { bucket: "nowhere".into(), ..good.clone() },
            "blob_bucket_missing",
            format!(
                "bucket nowhere at {url} does not exist; create the bucket or correct its name"
            ),
        ),
        (
            wrong_key("belay", "guess"),
            "blob_denied",
            format!(
                "bucket blobs at {url} refused our credentials; check the access key and its rights"
            ),
        ),
        (
            wrong_key("nobody", "secret"),
            "blob_denied",
            format!(
                "bucket blobs at {url} refused our credentials; check the access key and its rights"
            ),
        ),
        (
            S3Config { allow_http: false, ..good.clone() },
            "blob_configuration",
            format!("bucket blobs at {url} cannot be opened with this configuration"),
        ),
    ] {
        let began = Instant::now();
        let error = open(&config).await.unwrap_err();
        assert_eq!((error.code(), error.to_string()), (code, sentence));
        assert!(began.elapsed() < Duration::from_secs(5), "known at once, not after retries");
    }
    assert!(!format!("{:?}", wrong_key("belay", "guess")).contains("guess"), "secrets stay secret");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_overwrites_is_refused_at_start() {
    let server = Server::start_overwriting().await;
    let error = open(&s3(&server)).await.unwrap_err();
    assert_eq!(error.code(), "blob_no_conditional_put", "{error}");
}

/// The server speaks no TLS, so the handshake fails; what counts is that ours is attempted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_there_and_fails_as_unreachable() {
    let server = Server::start().await;
    let endpoint = Some(server.url().replace("http://", "https://"));
    let deadline = Duration::from_millis(600);
    let config = S3Config { endpoint, deadline, allow_http: false, ..s3(&server) };
    assert_eq!(open(&config).await.unwrap_err().code(), "blob_unreachable");
    assert_eq!(server.requests(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_keeps_blobs_in_their_folder() {
    let server = Server::start().await;
    let config = S3Config { prefix: Some("teams/one".into()), ..s3(&server) };
    let blobs = open(&config).await.unwrap();
    let key = fresh();
    blobs.append(key, 0, &b"hello"[..]).await.unwrap();
    blobs.seal(key, 5).await.unwrap();
    assert_eq!(blobs.list(key.kind()).await.unwrap()[0].key, key);
    assert!(server.bucket().join("teams/one").join(key.to_string()).join("sealed").is_file());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_blobs_go_through_in_large_appends() {
    let server = Server::start().await;
    let limits = BlobLimits::default();
    let blobs = Blobs::in_bucket(&s3(&server), limits).await.unwrap();
    let key = fresh();
    let all = pattern(0, 20 << 20);
    for (index, chunk) in all.chunks(8 << 20).enumerate() {
        blobs.append(key, (index as u64) << 23, chunk.to_vec()).await.unwrap();
    }
    let seal = blobs.seal(key, 20 << 20).await.unwrap();
    assert_eq!(seal.hash, BlobHash::of(&all));
    let read = blobs.read(key, (8 << 20) - 5..(8 << 20) + 5).await.unwrap();
    assert_eq!(read.bytes(), all[(8 << 20) - 5..(8 << 20) + 5]);
}
