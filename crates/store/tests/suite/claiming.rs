//! Claims: the kernel's order, each task once, nothing that waits.

use std::collections::BTreeSet;
use std::sync::Arc;

use belay_kernel::claim::effective_priority;
use belay_kernel::task::{Plan, State};
use belay_kernel::{Caps, Limits, Span};
use belay_store::rows::TaskRow;
use belay_store::{Candidate, ClaimAsk, Commit, Decide, Store};

use super::chance::Chance;
use super::make::*;

fn role() -> String {
    format!("role-{}", task_id())
}

pub(crate) async fn the_order_is_the_kernels<S: Store>(store: Arc<S>) {
    let (role, mut chance) = (role(), Chance(7));
    let mut rows: Vec<TaskRow> = Vec::new();
    for _ in 0..120 {
        let mut row = task(&role);
        row.priority = chance.below(7) as i64 - 3;
        row.task.since = at(chance.below(9_000_000) as i64);
        rows.push(row);
    }
    let commits = rows.iter().map(creation).collect();
    assert!(store.commit_all(commits).await.unwrap().iter().all(|one| one.is_done()));
    let now = at(9_000_000);
    let (limits, caps) = (Limits::default(), Caps::default());
    rows.sort_by_key(|row| {
        let rank = effective_priority(row.priority, row.task.since, now, &limits, &caps);
        (std::cmp::Reverse(rank), row.task.since, row.task.id.to_string())
    });
    let mut claimed = Vec::new();
    while claimed.len() < rows.len() {
        let ask = ClaimAsk { now, ..ask(&role, 17) };
        let claims = store.claim(ask, claimer()).await.unwrap();
        assert!(claims.iter().all(|claim| claim.committed.is_done()));
        assert!(!claims.is_empty());
        claimed.extend(claims.into_iter().map(|claim| claim.task));
    }
    let wanted: Vec<_> = rows.iter().map(|row| row.task.id).collect();
    assert_eq!(claimed, wanted);
}

pub(crate) async fn a_task_is_claimed_once_by_many<S: Store>(store: Arc<S>) {
    let role = role();
    let rows: Vec<_> = (0..200).map(|_| task(&role)).collect();
    store.commit_all(rows.iter().map(creation).collect()).await.unwrap();
    let claimers = (0..8).map(|_| {
        let (store, role) = (Arc::clone(&store), role.clone());
        tokio::spawn(async move {
            let mut mine = Vec::new();
            loop {
                let claims = store.claim(ask(&role, 7), claimer()).await.unwrap();
                let done = claims.iter().filter(|claim| claim.committed.is_done());
                mine.extend(done.map(|claim| claim.task));
                let left = store.waiting_roles(at(10_000)).await.unwrap();
                if claims.is_empty() && !left.contains(&role) {
                    return mine;
                }
            }
        })
    });
    let mut all = Vec::new();
    for claimer in claimers.collect::<Vec<_>>() {
        all.extend(claimer.await.unwrap());
    }
    let wanted: BTreeSet<_> = rows.iter().map(|row| row.task.id).collect();
    assert_eq!(all.len(), wanted.len(), "nothing was claimed twice");
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), wanted);
}

pub(crate) async fn what_waits_is_not_claimed<S: Store>(store: Arc<S>) {
    let role = role();
    let mut later = task(&role);
    later.task.state = State::Queued { plan: Plan::Same, not_before: Some(at(20_000)) };
    let waiting = TaskRow { unfinished: 2, ..task(&role) };
    let mut running = task(&role);
    running.task.state = State::Completed;
    let elsewhere = task("another-role");
    for row in [&later, &waiting, &running, &elsewhere] {
        done(&*store, creation(row)).await;
    }
    assert!(store.claim(ask(&role, 9), claimer()).await.unwrap().is_empty());
    let then = ClaimAsk { now: at(20_000), ..ask(&role, 9) };
    let claims = store.claim(then, claimer()).await.unwrap();
    assert_eq!(claims.iter().map(|one| one.task).collect::<Vec<_>>(), [later.task.id]);
    let freed = TaskRow { unfinished: 0, ..waiting };
    done(&*store, Commit::new().update(FIRST, &freed)).await;
    let claims = store.claim(ask(&role, 9), claimer()).await.unwrap();
    assert_eq!(claims.iter().map(|one| one.task).collect::<Vec<_>>(), [freed.task.id]);
}

/// The role's row is in the read set: a stop that comes between look and commit wins.
pub(crate) async fn a_stopped_role_is_not_claimed_for<S: Store>(store: Arc<S>) {
    let role = role();
    done(&*store, creation(&task(&role))).await;
    let seen = super::rows::role_row(&role);
    let stale: Decide = Arc::new(move |candidate: &Candidate| {
        let claim = claim_of(candidate, at(60_000));
        Some(claim.read(&belay_store::Stored { revision: FIRST, row: seen.clone() }))
    });
    let claims = store.claim(ask(&role, 1), stale).await.unwrap();
    assert_eq!(claims.len(), 1);
    assert!(!claims[0].committed.is_done(), "{claims:?}");
    assert_eq!(
        store.waiting_roles(at(10_000)).await.unwrap().iter().filter(|r| **r == role).count(),
        1
    );
}

pub(crate) async fn what_is_declined_hides_nothing<S: Store>(store: Arc<S>) {
    let role = role();
    let rows: Vec<_> = (0..12)
        .map(|index| {
            let mut row = task(&role);
            row.task.since = at(index);
            row
        })
        .collect();
    store.commit_all(rows.iter().map(creation).collect()).await.unwrap();
    let (last, claim) = (rows[11].task.id, claimer());
    let picky: Decide =
        Arc::new(
            move |candidate: &Candidate| {
                if candidate.task.row.task.id == last { claim(candidate) } else { None }
            },
        );
    let claims = store.claim(ask(&role, 1), picky).await.unwrap();
    assert_eq!(claims.iter().map(|one| one.task).collect::<Vec<_>>(), [last]);
}

pub(crate) async fn roles_with_claimable_tasks_are_known<S: Store>(store: Arc<S>) {
    let (ready, later, busy) = (role(), role(), role());
    let mut parked = task(&later);
    parked.task.state = State::Queued { plan: Plan::Same, not_before: Some(at(99_000)) };
    for row in [task(&ready), task(&ready), parked, TaskRow { unfinished: 1, ..task(&busy) }] {
        done(&*store, creation(&row)).await;
    }
    let known = |at| {
        let store = Arc::clone(&store);
        let ours = [ready.clone(), later.clone(), busy.clone()];
        async move {
            let roles = store.waiting_roles(at).await.unwrap();
            let mut roles: Vec<_> = roles.into_iter().filter(|one| ours.contains(one)).collect();
            roles.sort();
            roles
        }
    };
    assert_eq!(known(at(10_000)).await, std::slice::from_ref(&ready));
    let mut both = [ready.clone(), later.clone()];
    both.sort();
    assert_eq!(known(at(10_000).after(Span::from_mins(60))).await, both);
}
