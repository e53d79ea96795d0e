//! What every sandbox does with a well-behaved agent.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use belay_kernel::{Epoch, SandboxId, SessionId, SnapshotId, Span};
use belay_sandbox::{
    EndReason, Exit, Fence, More, Network, Phase, Probe, Proof, Provider, Refusal, Signal,
    SnapshotKind, Stream,
};

use super::world::{LONG, Subject, World, eventually, marked, unique};

/// The code of the refusal that an operation ended with.
pub(crate) fn refused<T: std::fmt::Debug>(result: belay_sandbox::Result<T>) -> &'static str {
    result.unwrap_err().refusal().expect("a refusal").code()
}

pub(crate) async fn an_agent_runs_and_its_output_and_exit_are_known<W: World>(world: &W) {
    let subject = Subject::new(world, "echo out; echo err >&2; pwd; exit 7");
    subject.start().await;
    let (chunks, end) = subject.chunks_until(|_| false).await;
    let of = |stream: Stream| -> String {
        let of_stream = chunks.iter().filter(|chunk| chunk.stream == stream);
        of_stream.map(|chunk| String::from_utf8_lossy(&chunk.bytes)).collect()
    };
    assert_eq!(of(Stream::Stdout), format!("out\n{}\n", subject.plan.tree.display()));
    assert_eq!(of(Stream::Stderr), "err\n");
    assert!(chunks.windows(2).all(|pair| pair[0].at <= pair[1].at), "times are in order");
    let end = end.unwrap();
    assert_eq!((end.exit, end.reason), (Exit::Code(7), EndReason::Exited));
    assert_eq!(end.sandbox, subject.fence.sandbox);
    subject.assert_gone();
    let sandbox = subject.fence.sandbox;
    assert_eq!(subject.provider.end(sandbox).await.unwrap(), Some(end));
    assert_eq!(subject.provider.probe(sandbox, Span::from_secs(5)).await, Probe::Gone);
    subject.destroy().await;
}

pub(crate) async fn nothing_runs_before_start<W: World>(world: &W) {
    let subject = Subject::new(world, "echo ran > ran; echo ran");
    subject.prepare().await;
    let output = subject
        .provider
        .attach(subject.fence.sandbox, 0, 1_000, Span::from_millis(300))
        .await
        .unwrap();
    assert!(output.chunks.is_empty() && output.end.is_none(), "{output:?}");
    assert!(!subject.plan.tree.join("ran").exists());
    let signalled = subject.provider.signal(&subject.fence, Signal::User1).await;
    assert_eq!(refused(signalled), "not_started");
    subject.provider.start(&subject.fence, subject.until(LONG)).await.unwrap();
    let (bytes, _) = subject.finish().await;
    assert_eq!(bytes, b"ran\n");
    assert!(subject.plan.tree.join("ran").exists());
    subject.destroy().await;
}

pub(crate) async fn every_call_may_be_repeated<W: World>(world: &W) {
    let subject = Subject::new(world, "echo once; $B sleep 1000");
    let (provider, fence) = (&subject.provider, &subject.fence);
    for _ in 0..2 {
        subject.prepare().await;
    }
    for _ in 0..2 {
        provider.start(fence, subject.until(LONG)).await.unwrap();
    }
    subject.see("once").await;
    for _ in 0..2 {
        provider.renew(fence, subject.until(LONG)).await.unwrap();
    }
    assert_eq!(provider.probe(fence.sandbox, Span::from_secs(5)).await, Probe::Healthy);
    let first = subject.stop(Span::from_millis(50)).await;
    let second = subject.stop(Span::from_millis(50)).await;
    assert_eq!(first, second, "the second stop gives the same receipt");
    let (bytes, end) = subject.finish().await;
    assert_eq!(bytes, b"once\n");
    assert_eq!(end.reason, EndReason::Stopped);
    assert_eq!(refused(provider.start(fence, subject.until(LONG)).await), "tombstoned");
    assert_eq!(refused(provider.renew(fence, subject.until(LONG)).await), "ended");
    assert_eq!(refused(provider.write(fence, 0, b"x", More::Follows).await), "ended");
    for _ in 0..2 {
        provider.destroy(fence).await.unwrap();
    }
    assert_eq!(refused(provider.attach(fence.sandbox, 0, 1, Span::ZERO).await), "not_found");
    let prepared = provider.prepare(fence, &subject.plan, subject.until(LONG)).await;
    assert_eq!(refused(prepared), "tombstoned");
}

pub(crate) async fn a_lower_epoch_is_refused<W: World>(world: &W) {
    let subject = Subject::new(world, "$B sleep 1000");
    let at = |epoch| Fence { epoch: Epoch(epoch), ..subject.fence };
    let provider = &subject.provider;
    provider.prepare(&at(5), &subject.plan, subject.until(LONG)).await.unwrap();
    let until = subject.until(LONG);
    let fenced = Refusal::Fenced { asked: Epoch(4), seen: Epoch(5) };
    let started = provider.start(&at(4), until).await.unwrap_err();
    assert_eq!(started.refusal(), Some(&fenced));
    provider.start(&at(6), until).await.unwrap();
    let old = at(5);
    assert_eq!(refused(provider.prepare(&old, &subject.plan, until).await), "fenced");
    assert_eq!(refused(provider.renew(&old, until).await), "fenced");
    assert_eq!(refused(provider.write(&old, 0, b"x", More::Follows).await), "fenced");
    assert_eq!(refused(provider.signal(&old, Signal::Terminate).await), "fenced");
    assert_eq!(refused(provider.pause(&old).await), "fenced");
    assert_eq!(refused(provider.resume(&old, until).await), "fenced");
    assert_eq!(refused(provider.stop(&old, Span::ZERO).await), "fenced");
    assert_eq!(refused(provider.destroy(&old).await), "fenced");
    let id = SnapshotId::from_bits(unique());
    assert_eq!(refused(provider.snapshot(&old, id, SnapshotKind::Files).await), "fenced");
    let other = Fence { sandbox: SandboxId::from_bits(unique()), ..old };
    assert_eq!(refused(provider.prepare(&other, &subject.plan, until).await), "fenced");
    // The number survives a new provider.
    assert_eq!(refused(world.open().stop(&old, Span::ZERO).await), "fenced");
    let stranger = Fence { session: SessionId::from_bits(unique()), ..at(9) };
    assert_eq!(refused(provider.renew(&stranger, until).await), "wrong_session");
    assert_eq!(provider.probe(old.sandbox, Span::from_secs(5)).await, Probe::Healthy);
    provider.stop(&at(6), Span::ZERO).await.unwrap();
    provider.destroy(&at(6)).await.unwrap();
}

pub(crate) async fn a_stop_before_creation_leaves_a_tombstone<W: World>(world: &W) {
    let subject = Subject::new(world, "echo ran");
    let receipt = subject.stop(Span::ZERO).await;
    assert_eq!(receipt.proof, Proof::NeverExisted);
    let provider = world.open();
    let until = subject.until(LONG);
    let prepared = provider.prepare(&subject.fence, &subject.plan, until).await;
    assert_eq!(refused(prepared), "tombstoned");
    assert_eq!(refused(provider.start(&subject.fence, until).await), "tombstoned");
    let snapshot = SnapshotId::from_bits(unique());
    let restored = provider.restore(&subject.fence, snapshot, &subject.plan, until).await;
    assert_eq!(refused(restored), "tombstoned");
    subject.assert_gone();

    let prepared = Subject::new(world, "echo ran > ran");
    prepared.prepare().await;
    prepared.stop(Span::from_secs(5)).await;
    let started = prepared.provider.start(&prepared.fence, until).await;
    assert_eq!(refused(started), "tombstoned");
    assert!(!prepared.plan.tree.join("ran").exists());
    prepared.destroy().await;
}

pub(crate) async fn standard_input_is_written_once<W: World>(world: &W) {
    let subject =
        Subject::new(world, "$B cat; echo done; while [ ! -e off ]; do $B sleep 0.01; done");
    subject.start().await;
    let (provider, fence) = (&subject.provider, &subject.fence);
    assert_eq!(provider.write(fence, 0, b"one ", More::Follows).await.unwrap(), 4);
    assert_eq!(provider.write(fence, 0, b"one ", More::Follows).await.unwrap(), 4);
    assert_eq!(provider.write(fence, 2, b"e two", More::Follows).await.unwrap(), 7);
    let gap = provider.write(fence, 9, b"x", More::Follows).await.unwrap_err();
    assert_eq!(gap.refusal(), Some(&Refusal::StdinGap { expected: 7, asked: 9 }));
    assert_eq!(provider.write(fence, 7, b"\n", More::Ends).await.unwrap(), 8);
    assert_eq!(provider.write(fence, 7, b"\n", More::Ends).await.unwrap(), 8);
    let closed = provider.write(fence, 8, b"more", More::Follows).await;
    assert_eq!(refused(closed), "stdin_closed");
    fs::write(subject.plan.tree.join("off"), "").unwrap();
    let (bytes, end) = subject.finish().await;
    assert_eq!(String::from_utf8_lossy(&bytes), "one two\ndone\n");
    assert_eq!(end.exit, Exit::Code(0));
    subject.destroy().await;
}

pub(crate) async fn signals_reach_the_agent<W: World>(world: &W) {
    let script = "trap 'echo usr1' USR1; trap 'echo int; exit 3' INT; echo ready; \
                  while :; do $B sleep 0.05; done";
    let subject = Subject::new(world, script);
    subject.start().await;
    subject.see("ready").await;
    subject.provider.signal(&subject.fence, Signal::User1).await.unwrap();
    subject.see("usr1").await;
    subject.provider.signal(&subject.fence, Signal::Interrupt).await.unwrap();
    let (_, end) = subject.finish().await;
    assert_eq!(end.exit, Exit::Code(3));
    subject.destroy().await;
}

pub(crate) async fn exit_signals_are_told_from_exit_codes<W: World>(world: &W) {
    let code = Subject::new(world, "exit 137");
    code.start().await;
    assert_eq!(code.finish().await.1.exit, Exit::Code(137));
    code.destroy().await;
    let signal = Subject::new(world, "kill -9 $$");
    signal.start().await;
    assert_eq!(signal.finish().await.1.exit, Exit::Signal(9));
    signal.destroy().await;
}

pub(crate) async fn a_sandbox_whose_lease_is_not_renewed_dies_before_it_ends<W: World>(world: &W) {
    let subject = Subject::new(world, "trap '' TERM; echo up; while :; do $B sleep 1; done");
    let until = subject.until(Span::from_secs(6));
    subject.provider.prepare(&subject.fence, &subject.plan, until).await.unwrap();
    subject.provider.start(&subject.fence, until).await.unwrap();
    subject.see("up").await;
    eventually("the sandbox is dead", || marked(subject.fence.sandbox).is_empty()).await;
    assert!(subject.provider.moment() <= until, "it died after the end of its lease");
    let (_, end) = subject.finish().await;
    assert_eq!((end.reason, end.exit), (EndReason::LeaseOver, Exit::Signal(9)));
    subject.assert_gone();
    assert!(subject.provider.renew(&subject.fence, subject.until(LONG)).await.is_err());
    subject.destroy().await;
}

pub(crate) async fn a_sandbox_that_is_never_started_dies_with_its_lease<W: World>(world: &W) {
    let subject = Subject::new(world, "echo ran > ran");
    let until = subject.until(Span::from_secs(3));
    subject.provider.prepare(&subject.fence, &subject.plan, until).await.unwrap();
    eventually("its lease is over", || subject.provider.moment() >= until).await;
    let started = subject.provider.start(&subject.fence, subject.until(LONG)).await;
    assert!(["ended", "lease_over"].contains(&refused(started)));
    assert_eq!(marked(subject.fence.sandbox), Vec::<String>::new());
    assert!(!subject.plan.tree.join("ran").exists());
    subject.destroy().await;
}

pub(crate) async fn renewals_keep_it_alive<W: World>(world: &W) {
    let subject = Subject::new(world, "echo up; $B sleep 1000");
    let step = Span::from_secs(6);
    let until = subject.until(step);
    subject.provider.prepare(&subject.fence, &subject.plan, until).await.unwrap();
    subject.provider.start(&subject.fence, until).await.unwrap();
    let enough = subject.until(Span::from_secs(8));
    while subject.provider.moment() < enough {
        subject.provider.renew(&subject.fence, subject.until(step)).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let probe = subject.provider.probe(subject.fence.sandbox, Span::from_secs(5)).await;
    assert_eq!(probe, Probe::Healthy);
    subject.stop(Span::ZERO).await;
    subject.destroy().await;
}

pub(crate) async fn pause_freezes_and_resume_goes_on<W: World>(world: &W) {
    let script = "i=0; while :; do i=$((i+1)); echo $i; $B sleep 0.01; done";
    let subject = Subject::new(world, script);
    subject.start().await;
    subject.see("3\n").await;
    let (provider, fence) = (&subject.provider, &subject.fence);
    if !provider.capabilities().pause {
        assert_eq!(refused(provider.pause(fence).await), "unsupported");
        subject.stop(Span::ZERO).await;
        return subject.destroy().await;
    }
    for _ in 0..2 {
        provider.pause(fence).await.unwrap();
    }
    let phase = provider.inspect(fence.sandbox).await.unwrap().phase;
    assert_eq!(phase, Phase::Paused);
    let (mut before, _) = subject.read_until(|_| true).await;
    loop {
        let wait = Span::from_millis(300);
        let offset = before.len() as u64;
        let more = provider.attach(fence.sandbox, offset, 1 << 20, wait).await.unwrap();
        if more.chunks.is_empty() {
            break;
        }
        before.extend(more.chunks.into_iter().flat_map(|chunk| chunk.bytes));
    }
    for _ in 0..2 {
        provider.resume(fence, subject.until(LONG)).await.unwrap();
    }
    let length = before.len();
    subject.read_until(|bytes| bytes.len() > length + 10).await;
    provider.pause(fence).await.unwrap();
    subject.stop(Span::from_millis(50)).await;
    subject.destroy().await;
}

/// Kept for the next attempt of its session: nobody renews its lease while it is frozen, another
/// provider finds it, and whoever goes on in it has a higher epoch.
pub(crate) async fn what_is_kept_frozen_goes_on_for_the_next_attempt<W: World>(world: &W) {
    let mut subject = Subject::new(world, "while read -r line; do echo heard $line; done");
    if !subject.provider.capabilities().pause {
        return;
    }
    let until = subject.until(Span::from_secs(8));
    subject.provider.prepare(&subject.fence, &subject.plan, until).await.unwrap();
    subject.provider.start(&subject.fence, until).await.unwrap();
    let told = subject.provider.write(&subject.fence, 0, b"one\n", More::Follows).await.unwrap();
    subject.see("heard one\n").await;
    let before = marked(subject.fence.sandbox);
    subject.provider.pause(&subject.fence).await.unwrap();
    eventually("its lease is over", || subject.provider.moment() >= until).await;
    assert_eq!(marked(subject.fence.sandbox).len(), before.len(), "it is there, and frozen");

    let old = subject.fence;
    subject.provider = world.open();
    subject.fence.epoch = Epoch(2);
    let (provider, fence) = (&subject.provider, &subject.fence);
    assert_eq!(provider.end(fence.sandbox).await.unwrap(), None);
    assert_eq!(provider.probe(fence.sandbox, Span::from_secs(5)).await, Probe::Healthy);
    provider.resume(fence, subject.until(LONG)).await.unwrap();
    provider.write(fence, told, b"two\n", More::Follows).await.unwrap();
    let (bytes, _) = subject.read_until(|bytes| bytes.ends_with(b"two\n")).await;
    assert_eq!(String::from_utf8_lossy(&bytes), "heard one\nheard two\n");
    assert_eq!(refused(provider.pause(&old).await), "fenced");

    // Frozen is not gone: a stop ends it as it is.
    provider.pause(fence).await.unwrap();
    subject.stop(Span::from_millis(50)).await;
    subject.assert_gone();
    subject.destroy().await;
}

pub(crate) async fn a_snapshot_gives_the_files_back<W: World>(world: &W) {
    let subject = Subject::new(world, "echo text > file; echo ready; $B sleep 1000");
    let tree = subject.plan.tree.clone();
    fs::create_dir_all(tree.join("directory/empty")).unwrap();
    fs::write(tree.join("directory/data"), [0, 159, 146, 150]).unwrap();
    fs::set_permissions(tree.join("directory/data"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(tree.join("directory/data"), tree.join("linked")).unwrap();
    symlink("directory/data", tree.join("symbolic")).unwrap();
    symlink("/nowhere", tree.join("dangling")).unwrap();
    let long = "n".repeat(200);
    fs::write(tree.join(&long), "long").unwrap();
    subject.start().await;
    subject.see("ready").await;
    let (provider, fence) = (&subject.provider, &subject.fence);
    let id = SnapshotId::from_bits(unique());
    let memory = provider.snapshot(fence, id, SnapshotKind::Memory).await;
    assert_eq!(refused(memory), "unsupported");
    let snapshot = provider.snapshot(fence, id, SnapshotKind::Files).await.unwrap();
    assert_eq!((snapshot.id, snapshot.sandbox), (id, fence.sandbox));
    fs::write(tree.join("file"), "later").unwrap();
    let again = provider.snapshot(fence, id, SnapshotKind::Files).await.unwrap();
    assert_eq!(again, snapshot);
    subject.stop(Span::ZERO).await;

    let mut copy = Subject::new(world, "$B cat file; exit 0");
    fs::write(copy.plan.tree.join("precious"), "").unwrap();
    let restore = copy.provider.restore(&copy.fence, id, &copy.plan, copy.until(LONG)).await;
    assert_eq!(refused(restore), "tree_exists");
    copy.plan.tree = copy.plan.tree.with_extension("restored");
    for _ in 0..2 {
        copy.provider.restore(&copy.fence, id, &copy.plan, copy.until(LONG)).await.unwrap();
    }
    copy.provider.start(&copy.fence, copy.until(LONG)).await.unwrap();
    assert_eq!(copy.finish().await.0, b"text\n");
    let restored = &copy.plan.tree;
    for name in ["directory", "directory/empty", "directory/data", "symbolic", long.as_str()] {
        let (old, new) = (tree.join(name), restored.join(name));
        let (old, new) = (old.symlink_metadata().unwrap(), new.symlink_metadata().unwrap());
        assert_eq!((old.mode(), old.uid(), old.gid()), (new.mode(), new.uid(), new.gid()));
        assert_eq!((old.mtime(), old.mtime_nsec()), (new.mtime(), new.mtime_nsec()), "{name}");
    }
    assert_eq!(fs::read(restored.join("linked")).unwrap(), [0, 159, 146, 150]);
    let inode = |name: &str| restored.join(name).metadata().unwrap().ino();
    assert_eq!(inode("linked"), inode("directory/data"));
    assert_eq!(fs::read_link(restored.join("dangling")).unwrap().to_str(), Some("/nowhere"));
    let unknown = SnapshotId::from_bits(unique());
    let fresh = Subject::new(world, "true");
    let missing = fresh.provider.restore(&fresh.fence, unknown, &fresh.plan, fresh.until(LONG));
    assert_eq!(refused(missing.await), "snapshot_missing");
    for _ in 0..2 {
        provider.forget(id).await.unwrap();
    }
    let forgotten = fresh.provider.restore(&fresh.fence, id, &fresh.plan, fresh.until(LONG)).await;
    assert_eq!(refused(forgotten), "snapshot_missing");
    copy.destroy().await;
    subject.destroy().await;
}

pub(crate) async fn a_new_provider_reattaches<W: World>(world: &W) {
    let script =
        "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo line $i; $B sleep 0.01; done; exit 5";
    let subject = Subject::new(world, script);
    subject.start().await;
    let before = subject.see("line 20\n").await;
    let subject = Subject { provider: world.open(), ..subject };
    let mut all = before;
    let end = loop {
        let output = subject
            .provider
            .attach(subject.fence.sandbox, all.len() as u64, 100, Span::from_secs(5))
            .await
            .unwrap();
        all.extend(output.chunks.into_iter().flat_map(|chunk| chunk.bytes));
        if let Some(end) = output.end {
            break end;
        }
    };
    let expected: String = (1..=200).map(|number| format!("line {number}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&all), expected);
    assert_eq!(end.exit, Exit::Code(5));
    // The agent ended meanwhile; whoever comes now still learns everything.
    let late = Subject { provider: world.open(), ..subject };
    let (bytes, end) = late.finish().await;
    assert_eq!((bytes.len(), end.exit), (expected.len(), Exit::Code(5)));
    late.destroy().await;
}

pub(crate) async fn list_and_inspect_see_it<W: World>(world: &W) {
    let subject = Subject::new(world, "echo up; $B sleep 1000 & $B sleep 1000");
    let (provider, sandbox) = (&subject.provider, subject.fence.sandbox);
    assert_eq!(refused(provider.inspect(sandbox).await), "not_found");
    assert_eq!(provider.probe(sandbox, Span::from_secs(5)).await, Probe::Gone);
    subject.start().await;
    subject.see("up").await;
    let listed = provider.list().await.unwrap();
    let own = listed.iter().find(|listed| listed.sandbox == sandbox).unwrap();
    assert_eq!((own.session, own.task), (subject.fence.session, subject.plan.task));
    assert_eq!((own.epoch, own.phase), (Epoch(1), Phase::Running));
    let mut sleepers = 0;
    while sleepers < 2 {
        let inspection = provider.inspect(sandbox).await.unwrap();
        sleepers = inspection.processes.iter().filter(|p| p.name == "busybox").count();
        assert!(inspection.memory_bytes > 0);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    subject.stop(Span::ZERO).await;
    let inspection = provider.inspect(sandbox).await.unwrap();
    assert_eq!((inspection.phase, inspection.processes.len()), (Phase::Ended, 0));
    let listed = provider.list().await.unwrap();
    let own = listed.iter().find(|listed| listed.sandbox == sandbox).unwrap();
    assert_eq!(own.phase, Phase::Ended);
    provider.destroy(&subject.fence).await.unwrap();
    let listed = provider.list().await.unwrap();
    assert!(listed.iter().all(|listed| listed.sandbox != sandbox));
    subject.destroy().await;
}

pub(crate) async fn the_environment_is_only_what_the_plan_says<W: World>(world: &W) {
    let mut subject = Subject::new(world, "$B env");
    subject.plan.env.insert("GREETING".into(), "$HOME `x` \\ \"'\n*".into());
    subject.start().await;
    let (bytes, _) = subject.finish().await;
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("GREETING=$HOME `x` \\ \"'\n*\n"), "{text}");
    assert!(text.contains(&format!("BELAY_SANDBOX={}", subject.fence.sandbox)));
    for secret in ["CARGO", "LD_LIBRARY_PATH", "NEXTEST"] {
        assert!(!text.contains(secret), "{text}");
    }
    subject.destroy().await;
}

pub(crate) async fn the_rest_of_the_machine_is_hidden<W: World>(world: &W) {
    let other = Subject::new(world, "true");
    fs::write(other.plan.tree.join("secret"), "treasure").unwrap();
    let secret = other.plan.tree.join("secret");
    let script = format!(
        "$B cat {} || echo hidden; echo x > /usr/evil || echo read-only; \
         echo mine > mine && $B cat mine; $B ls -A ~root /home | $B grep -v : | $B wc -l",
        secret.display()
    );
    let subject = Subject::new(world, &script);
    if !subject.provider.capabilities().isolation {
        return;
    }
    subject.start().await;
    let (bytes, end) = subject.finish().await;
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains("treasure"), "{text}");
    assert!(text.contains("hidden\n") && text.contains("read-only\n"), "{text}");
    assert_eq!(end.exit, Exit::Code(0));
    assert_eq!(fs::read(subject.plan.tree.join("mine")).unwrap(), b"mine\n");
    subject.destroy().await;
}

pub(crate) async fn the_network_can_be_cut<W: World>(world: &W) {
    let mut subject = Subject::new(world, "$B cat /proc/net/dev | $B grep -c :");
    if !subject.provider.capabilities().network_cut {
        return;
    }
    subject.plan.network = Network::Cut;
    subject.start().await;
    let (bytes, _) = subject.finish().await;
    assert_eq!(String::from_utf8_lossy(&bytes), "1\n", "only the loopback is there");
    subject.destroy().await;
}
