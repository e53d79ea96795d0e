//! What every sandbox does with an agent that misbehaves. After a stop not one process is left, as
//! `/proc` shows it, and the receipt says what was killed and how that is known.

use std::time::{Duration, Instant};

use belay_kernel::Span;
use belay_sandbox::{Exit, Limits, Proof, Provider, Receipt};

use super::world::{Subject, World, contains, eventually, marked};

const GRACE: Span = Span::from_millis(100);

fn assert_proven(receipt: &Receipt) {
    assert_ne!(receipt.proof, Proof::NeverExisted);
    assert!(receipt.began <= receipt.proven);
    assert!(receipt.killed_count >= receipt.killed.len() as u64);
}

pub(crate) async fn daemons_that_ignore_signals<W: World>(world: &W) {
    let script = "trap '' TERM HUP INT; i=0; while [ $i -lt 10 ]; do i=$((i+1)); \
                  ($B setsid $B sh -c 'trap \"\" TERM HUP INT; \
                  ($B setsid $B sh -c \"while :; do $B sleep 1; done\" \
                  </dev/null >/dev/null 2>&1 &)' &); done; echo up; while :; do $B sleep 1; done";
    let subject = Subject::new(world, script);
    subject.start().await;
    subject.see("up").await;
    let daemons = || marked(subject.fence.sandbox).len() > 20;
    eventually("the daemons are there", daemons).await;
    let receipt = subject.stop(GRACE).await;
    assert_proven(&receipt);
    assert!(receipt.killed_count > 10, "{receipt:?}");
    assert!(receipt.killed.iter().any(|seen| seen.name == "busybox" && seen.started > 0));
    subject.destroy().await;
}

pub(crate) async fn a_fork_bomb<W: World>(world: &W) {
    let script = "trap '' TERM; echo up; bomb() { (bomb) & (bomb) & exec $B sleep 1000; }; \
                  (bomb 2>/dev/null) & exec $B sleep 1000";
    let mut subject = Subject::new(world, script);
    let limit = 60;
    subject.plan.limits = Limits { processes: Some(limit), ..Limits::default() };
    if !subject.provider.capabilities().process_limit {
        // A bomb without a limit would be the whole machine's trouble; many children will do.
        subject.plan.argv[3] = "echo up; i=0; while [ $i -lt 100 ]; do i=$((i+1)); \
                                $B setsid $B sleep 1000 & done; wait"
            .into();
    }
    subject.start().await;
    subject.see("up").await;
    // A shell that cannot fork ends, and stays as a zombie that counts against the limit.
    eventually("it has grown", || marked(subject.fence.sandbox).len() > 5).await;
    if subject.provider.capabilities().process_limit {
        let count = marked(subject.fence.sandbox).len();
        assert!(count <= limit as usize + 8, "{count} processes");
    }
    assert_proven(&subject.stop(GRACE).await);
    subject.destroy().await;
}

pub(crate) async fn ten_thousand_lines_a_second<W: World>(world: &W) {
    let lines = 30_000;
    let script = format!("$B seq 1 {lines} | $B awk '{{ print \"line\", $1; fflush() }}'");
    let subject = Subject::new(world, &script);
    subject.start().await;
    let began = Instant::now();
    let (bytes, end) = subject.finish().await;
    let seconds = began.elapsed().as_secs_f64();
    let expected: String = (1..=lines).map(|line| format!("line {line}\n")).collect();
    assert!(bytes == expected.as_bytes(), "{} of {} bytes", bytes.len(), expected.len());
    assert_eq!(end.exit, Exit::Code(0));
    assert!(seconds < 30.0, "{lines} lines took {seconds} s");
    subject.destroy().await;
}

pub(crate) async fn a_line_of_ten_megabytes<W: World>(world: &W) {
    let subject =
        Subject::new(world, "$B head -c 10485760 /dev/zero | $B tr '\\0' x; echo; echo end");
    subject.start().await;
    let (bytes, _) = subject.finish().await;
    assert_eq!(bytes.len(), 10_485_760 + 5);
    assert!(bytes[..10_485_760].iter().all(|&byte| byte == b'x'));
    assert_eq!(&bytes[10_485_760..], b"\nend\n");
    subject.destroy().await;
}

pub(crate) async fn binary_output<W: World>(world: &W) {
    let script = "$B head -c 1000000 /dev/urandom > random; $B cat random; $B printf '\\000\\377'";
    let subject = Subject::new(world, script);
    subject.start().await;
    let (bytes, _) = subject.finish().await;
    let mut expected = std::fs::read(subject.plan.tree.join("random")).unwrap();
    expected.extend([0, 255]);
    assert!(bytes == expected, "{} of {} bytes, or others", bytes.len(), expected.len());
    subject.destroy().await;
}

pub(crate) async fn closes_its_output_and_runs_on<W: World>(world: &W) {
    let script = "echo first; exec >&-; echo second >&2; exec 2>&-; echo x > on; \
                  while [ ! -e off ]; do $B sleep 0.01; done; exit 4";
    let subject = Subject::new(world, script);
    subject.start().await;
    subject.see("second").await;
    eventually("it runs on", || subject.plan.tree.join("on").exists()).await;
    assert!(!marked(subject.fence.sandbox).is_empty());
    std::fs::write(subject.plan.tree.join("off"), "").unwrap();
    let (bytes, end) = subject.finish().await;
    // The two streams are two pipes: nobody knows which was written first.
    assert!(bytes == b"first\nsecond\n" || bytes == b"second\nfirst\n");
    assert_eq!(end.exit, Exit::Code(4));
    subject.destroy().await;
}

pub(crate) async fn fills_its_disk<W: World>(world: &W) {
    let script = "$B dd if=/dev/zero of=/tmp/fill bs=1M count=100; $B wc -c < /tmp/fill; \
                  echo full; $B sleep 1000";
    let mut subject = Subject::new(world, script);
    if !subject.provider.capabilities().isolation {
        return fills_one_file(world).await;
    }
    subject.plan.limits.scratch_bytes = Some(8 << 20);
    subject.start().await;
    let bytes = subject.see("full").await;
    assert!(contains(&bytes, "8388608\n"), "{}", String::from_utf8_lossy(&bytes));
    assert!(contains(&bytes, "No space left"), "{}", String::from_utf8_lossy(&bytes));
    assert_proven(&subject.stop(GRACE).await);
    subject.destroy().await;
}

/// Without a file system of its own only the size of each file is limited.
async fn fills_one_file<W: World>(world: &W) {
    let script = "$B dd if=/dev/zero of=fill bs=1M count=100; $B wc -c < fill; echo full; \
                  $B sleep 1000";
    let mut subject = Subject::new(world, script);
    subject.plan.limits.file_bytes = Some(8 << 20);
    subject.start().await;
    let bytes = subject.see("full").await;
    assert!(contains(&bytes, "8388608\n"), "{}", String::from_utf8_lossy(&bytes));
    assert_proven(&subject.stop(GRACE).await);
    subject.destroy().await;
}

pub(crate) async fn eats_memory<W: World>(world: &W) {
    let mut subject =
        Subject::new(world, "$B dd if=/dev/zero of=/dev/null bs=600M count=1; echo $?");
    subject.plan.limits.memory_bytes = Some(64 << 20);
    let limited = subject.provider.capabilities().memory_limit;
    subject.start().await;
    let (bytes, end) = subject.finish().await;
    let text = String::from_utf8_lossy(&bytes);
    if limited {
        assert!(end.out_of_memory, "{end:?} {text}");
    }
    assert_ne!(text.lines().last(), Some("0"), "it got its memory: {text}");
    subject.assert_gone();
    subject.destroy().await;
}

pub(crate) async fn stops_itself<W: World>(world: &W) {
    let subject =
        Subject::new(world, "$B sleep 1000 & kill -STOP $!; echo up; kill -STOP $$; echo no");
    subject.start().await;
    subject.see("up").await;
    assert_proven(&subject.stop(GRACE).await);
    subject.destroy().await;
}

pub(crate) async fn leaves_zombies<W: World>(world: &W) {
    let script = "i=0; while [ $i -lt 20 ]; do i=$((i+1)); $B true & done; \
                  ($B sh -c '$B true & exec $B sleep 1000' &); echo up; exec $B sleep 1000";
    let subject = Subject::new(world, script);
    subject.start().await;
    subject.see("up").await;
    let receipt = subject.stop(GRACE).await;
    assert_proven(&receipt);
    subject.destroy().await;
}

pub(crate) async fn changes_its_title<W: World>(world: &W) {
    let script = "printf 'a) Z (b' > /proc/$$/comm; $B cat /proc/$$/comm; \
                  trap '' TERM; echo up; while :; do $B sleep 1; done";
    let subject = Subject::new(world, script);
    subject.start().await;
    let bytes = subject.see("up").await;
    assert!(contains(&bytes, "a) Z (b\n"), "{}", String::from_utf8_lossy(&bytes));
    let receipt = subject.stop(GRACE).await;
    assert_proven(&receipt);
    assert!(receipt.killed.iter().any(|seen| seen.name == "a) Z (b"), "{receipt:?}");
    subject.destroy().await;
}

pub(crate) async fn a_child_in_a_new_mount_namespace<W: World>(world: &W) {
    let script = "trap '' TERM; ($B setsid $B unshare -m $B sleep 1000 || \
                  $B setsid $B unshare -Urm $B sleep 1000 || echo refused) & \
                  $B sleep 0.3; echo up; while :; do $B sleep 1; done";
    let subject = Subject::new(world, script);
    subject.start().await;
    subject.see("up").await;
    let began = Instant::now();
    assert_proven(&subject.stop(GRACE).await);
    assert!(began.elapsed() < Duration::from_secs(5));
    subject.destroy().await;
}
