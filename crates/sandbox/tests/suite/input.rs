//! Bad input: each a typed error that names the thing, and nothing left behind.

use std::fs;

use belay_kernel::{SnapshotId, Span};
use belay_sandbox::{Error, Provider, Refusal, SnapshotKind};

use super::basics::refused;
use super::world::{LONG, Subject, World, unique};

/// Prepares, expects a refusal, and checks that nothing is left behind.
async fn refuse<W: World>(subject: &Subject<'_, W>) -> Refusal {
    let until = subject.until(LONG);
    let error = subject.provider.prepare(&subject.fence, &subject.plan, until).await.unwrap_err();
    assert_clean(subject).await;
    match error {
        Error::Refused(refusal) => refusal,
        other => panic!("not a refusal: {other:?}"),
    }
}

async fn assert_clean<W: World>(subject: &Subject<'_, W>) {
    subject.assert_gone();
    let sandbox = subject.fence.sandbox;
    assert_eq!(refused(subject.provider.inspect(sandbox).await), "not_found");
    let listed = subject.provider.list().await.unwrap();
    assert!(listed.iter().all(|listed| listed.sandbox != sandbox));
}

pub(crate) async fn a_tree_that_does_not_exist<W: World>(world: &W) {
    let mut subject = Subject::new(world, "true");
    subject.plan.tree = "/nowhere/tree".into();
    let path = subject.plan.tree.clone();
    assert_eq!(refuse(&subject).await, Refusal::TreeMissing { path });
    subject.plan.tree = "relative".into();
    assert_eq!(refuse(&subject).await.code(), "bad_plan");
}

pub(crate) async fn a_program_that_is_missing<W: World>(world: &W) {
    for program in ["/bin/no-such-program", "no-such-program"] {
        let mut subject = Subject::new(world, "true");
        subject.plan.argv = vec![program.into()];
        let until = subject.until(LONG);
        // A provider may see it when it prepares or when it executes.
        let mut result = subject.provider.prepare(&subject.fence, &subject.plan, until).await;
        if result.is_ok() {
            result = subject.provider.start(&subject.fence, until).await;
        }
        let error = result.unwrap_err();
        let program = program.to_owned();
        assert_eq!(error.refusal(), Some(&Refusal::ProgramMissing { program }), "{error:?}");
        subject.assert_gone();
        subject.destroy().await;
    }
}

pub(crate) async fn a_program_that_is_not_executable<W: World>(world: &W) {
    let mut subject = Subject::new(world, "true");
    let program = subject.plan.tree.join("plain");
    fs::write(&program, "text").unwrap();
    let program = program.to_str().unwrap().to_owned();
    subject.plan.argv = vec![program.clone()];
    let until = subject.until(LONG);
    let mut result = subject.provider.prepare(&subject.fence, &subject.plan, until).await;
    if result.is_ok() {
        result = subject.provider.start(&subject.fence, until).await;
    }
    let error = result.unwrap_err();
    assert_eq!(error.refusal(), Some(&Refusal::ProgramNotExecutable { program }), "{error:?}");
    subject.assert_gone();
    subject.destroy().await;
}

pub(crate) async fn an_environment_variable_with_nul<W: World>(world: &W) {
    let mut subject = Subject::new(world, "true");
    subject.plan.env.insert("EVIL".into(), "a\0b".into());
    match refuse(&subject).await {
        Refusal::BadEnvironment { name, .. } => assert_eq!(name, "EVIL"),
        other => panic!("{other:?}"),
    }
    subject.plan.env.remove("EVIL");
    subject.plan.argv.push("a\0b".into());
    assert_eq!(refuse(&subject).await.code(), "bad_plan");
    subject.plan.argv.clear();
    assert_eq!(refuse(&subject).await.code(), "bad_plan");
}

pub(crate) async fn a_truncated_snapshot<W: World>(world: &W) {
    let subject = Subject::new(world, "echo up; $B sleep 1000");
    fs::write(subject.plan.tree.join("data"), vec![7; 100_000]).unwrap();
    subject.start().await;
    let id = SnapshotId::from_bits(unique());
    subject.provider.snapshot(&subject.fence, id, SnapshotKind::Files).await.unwrap();
    subject.stop(Span::ZERO).await;
    world.truncate(id);
    let mut copy = Subject::new(world, "true");
    fs::remove_dir(&copy.plan.tree).unwrap();
    copy.plan.tree = copy.plan.tree.with_extension("restored");
    let until = copy.until(LONG);
    let error = copy.provider.restore(&copy.fence, id, &copy.plan, until).await.unwrap_err();
    match error.refusal() {
        Some(Refusal::SnapshotBroken { snapshot, .. }) => assert_eq!(*snapshot, id),
        _ => panic!("{error:?}"),
    }
    assert!(!copy.plan.tree.exists());
    let name = copy.plan.tree.file_stem().unwrap().to_str().unwrap();
    let left = fs::read_dir(world.scratch()).unwrap().flatten();
    let left: Vec<_> = left.map(|e| e.file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|other| !other.contains(name)), "{left:?}");
    assert_clean(&copy).await;
    subject.destroy().await;
}
