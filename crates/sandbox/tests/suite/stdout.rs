//! Standard output as a regular file: for agents that exit before a pipe has taken everything.

use belay_kernel::Span;
use belay_sandbox::{EndReason, Exit, Provider, Stdout, Stream};

use super::world::{LONG, Subject, World, contains, eventually};

fn subject<'w, W: World>(world: &'w W, script: &str) -> Subject<'w, W> {
    let mut subject = Subject::new(world, script);
    subject.plan.stdout = Stdout::File;
    subject
}

pub(crate) async fn a_file_arrives_whole_and_in_order<W: World>(world: &W) {
    let lines = 450_000;
    let script =
        format!("[ -f /proc/self/fd/1 ] && echo file; $B seq 1 {lines}; echo err >&2; exit 9");
    let subject = subject(world, &script);
    subject.start().await;
    let (chunks, end) = subject.chunks_until(|_| false).await;
    let of = |stream: Stream| -> Vec<u8> {
        let of_stream = chunks.iter().filter(|chunk| chunk.stream == stream);
        of_stream.flat_map(|chunk| chunk.bytes.clone()).collect()
    };
    let numbers = (1..=lines).map(|line| format!("{line}\n"));
    let expected: String = std::iter::once("file\n".to_owned()).chain(numbers).collect();
    let stdout = of(Stream::Stdout);
    assert!(stdout == expected.as_bytes(), "{} of {} bytes", stdout.len(), expected.len());
    assert_eq!(of(Stream::Stderr), b"err\n");
    assert!(chunks.windows(2).all(|pair| pair[0].at <= pair[1].at), "times are in order");
    let end = end.unwrap();
    assert_eq!((end.exit, end.reason), (Exit::Code(9), EndReason::Exited));
    assert_eq!(end.output_bytes, expected.len() as u64 + 4);
    subject.assert_gone();
    subject.destroy().await;
}

/// The agent goes on only when what it wrote before was seen, so nothing here may wait for its end.
pub(crate) async fn a_file_that_grows_is_read_while_it_grows<W: World>(world: &W) {
    let script = "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo step $i; \
                  while [ ! -e go-$i ]; do $B sleep 0.01; done; done; $B cat; exit 3";
    let subject = subject(world, script);
    subject.start().await;
    for step in 1..=20 {
        subject.see(&format!("step {step}\n")).await;
        std::fs::write(subject.plan.tree.join(format!("go-{step}")), "").unwrap();
    }
    let (provider, fence) = (&subject.provider, &subject.fence);
    provider.write(fence, 0, b"input\n", belay_sandbox::More::Ends).await.unwrap();
    let (bytes, end) = subject.finish().await;
    let steps: String = (1..=20).map(|step| format!("step {step}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&bytes), format!("{steps}input\n"));
    assert_eq!(end.exit, Exit::Code(3));
    subject.destroy().await;
}

/// A child that outlives the agent, and a stop, take nothing from what was written.
pub(crate) async fn what_children_left_in_the_file_arrives<W: World>(world: &W) {
    let script = "trap '' TERM; $B seq 1 100000; ($B setsid $B sh -c 'echo child > born; \
                  echo child; exec $B sleep 1000' &); while [ ! -e born ]; do $B sleep 0.01; done; \
                  $B seq 1 100000; echo x > written; $B sleep 1000";
    let subject = subject(world, script);
    subject.start().await;
    eventually("all is written", || subject.plan.tree.join("written").exists()).await;
    subject.stop(Span::ZERO).await;
    let (bytes, end) = subject.finish().await;
    assert_eq!((end.exit, end.reason), (Exit::Signal(9), EndReason::Stopped));
    assert!(contains(&bytes[588_000..], "child\n"));
    assert!(bytes.ends_with(b"\n99999\n100000\n"), "the tail is missing");
    assert_eq!(bytes.len(), 2 * 588_895 + "child\n".len());
    assert!(subject.provider.renew(&subject.fence, subject.until(LONG)).await.is_err());
    subject.destroy().await;
}

pub(crate) async fn the_file_cannot_be_emptied<W: World>(world: &W) {
    let script = "echo first; { echo second > /proc/self/fd/1; } 2>/dev/null || echo refused; \
                  echo third";
    let subject = subject(world, script);
    subject.start().await;
    let (bytes, _) = subject.finish().await;
    let text = String::from_utf8_lossy(&bytes);
    let root = rustix::process::geteuid().is_root();
    if root && !subject.provider.capabilities().isolation {
        // Root may open anything; what follows is read all the same.
        assert!(text.ends_with("third\n"), "{text}");
    } else {
        assert!(text == "first\nrefused\nthird\n", "{text}");
    }
    subject.destroy().await;
}
