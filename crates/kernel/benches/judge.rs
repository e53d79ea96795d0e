//! How fast the kernel decides: verdicts per second, one million sandboxes in one pass, proof that
//! the working path allocates nothing, and transitions of a task per second.
//!
//! `cargo bench -p belay-kernel` prints the figures and fails if a bound is broken.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use belay_kernel::budget::Standing;
use belay_kernel::claim::{ClaimFacts, SessionSlot};
use belay_kernel::evidence::Evidence;
use belay_kernel::retry::{Effort, Progress};
use belay_kernel::task::{
    Children, Event, Plan, Policy, QueueFacts, Reason, Review, State, SuccessFacts, Task, step,
};
use belay_kernel::tool::ToolKey;
use belay_kernel::verdict::{Ruling, judge};
use belay_kernel::{
    AttemptNumber, Disposition, Epoch, EventKind, HeartbeatStatus, Limits, Span, TaskId, Timestamp,
};

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator, which upholds the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises about `layout` are passed on as they are.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, which is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SANDBOXES: usize = 1_000_000;
const BOUND_MS: f64 = 100.0;

/// A fleet: nine in ten work, the others are idle, stuck, dead, lingering, starting or held.
fn fleet(now: Timestamp) -> Vec<Evidence> {
    (0..SANDBOXES).map(|index| sandbox(index, now)).collect()
}

fn sandbox(index: usize, now: Timestamp) -> Evidence {
    let ago = |seconds: u64| now.before(Span::from_secs(seconds));
    let mut evidence = Evidence::new(ago(3_000));
    evidence.seen(&EventKind::Started, ago(2_900));
    evidence.tool_opened(ToolKey::of("first"), ago(800 + index as u64 % 100));
    match index % 40 {
        0 => evidence.beat(HeartbeatStatus::Idle, ago(5)),
        1 => evidence = Evidence::new(ago(60)),
        2 => {
            evidence.seen(&EventKind::Completed, ago(100));
            evidence.beat(HeartbeatStatus::Idle, ago(5));
        }
        3 => evidence.asked(ago(1)),
        _ => {
            evidence.tool_opened(ToolKey::of("second"), ago(30));
            evidence.beat(HeartbeatStatus::Running, ago(5));
        }
    }
    evidence
}

const LIVES: u32 = 100_000;
const TRANSITIONS: u32 = 4;

/// A task's life: run, claimed, started, succeeded.
fn life(now: Timestamp) -> State {
    let policy = Policy::default();
    let task = Task {
        id: TaskId::from_bits(1),
        parent: None,
        review: Review::Manual,
        max_attempts: 1,
        state: State::Pending { plan: Plan::Fresh },
        reason: Reason::Created,
        since: now,
        attempts: AttemptNumber(0),
        effort: Effort::default(),
    };
    let attempt = AttemptNumber(1);
    let facts = SuccessFacts {
        progress: Progress::Made,
        children: Children::default(),
        budget: Standing::Left,
    };
    let claim = ClaimFacts {
        unfinished_dependencies: 0,
        session: SessionSlot::Free,
        role: None,
        budget: Standing::Left,
        account_probe: None,
        tree: None,
    };
    let events = [
        Event::Run(QueueFacts { failed_dependency: None, budget: Standing::Left }),
        Event::Claim { facts: claim, epoch: Epoch(1), lease_end: now.after(policy.limits.linger) },
        Event::Start { attempt },
        Event::Succeed { attempt, facts },
    ];
    let (mut task, mut row) = (task, None);
    for event in &events {
        if let Disposition::Accept(next) =
            step(black_box(&task), row.as_ref(), black_box(event), now, &policy)
        {
            (task, row) = (next.task, next.attempt.or(row));
        }
    }
    assert!(matches!(task.state, State::Ready { .. }), "the life is whole");
    task.state
}

/// Seconds that `work` took, the best of five.
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench measures time")]
fn best_of_five(mut work: impl FnMut()) -> f64 {
    let measured = (0..5).map(|_| {
        let begin = std::time::Instant::now();
        work();
        begin.elapsed().as_secs_f64()
    });
    measured.fold(f64::INFINITY, f64::min)
}

#[expect(clippy::print_stdout, reason = "a bench prints its figures")]
fn main() -> ExitCode {
    let (limits, now) = (Limits::default(), Timestamp::from_millis(1_800_000_000_000));
    let fleet = fleet(now);
    let pass = best_of_five(|| {
        let mut due = Timestamp::MAX;
        let mut condemned = 0usize;
        for evidence in black_box(&fleet) {
            let verdict = judge(evidence, black_box(&limits), now);
            condemned += usize::from(verdict.ruling.cause().is_some());
            due = due.min(verdict.recheck_at.unwrap_or(Timestamp::MAX));
        }
        black_box((condemned, due));
    });
    let one = sandbox(7, now);
    let hot = best_of_five(|| {
        for _ in 0..SANDBOXES {
            black_box(judge(black_box(&one), black_box(&limits), now));
        }
    });
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let working = fleet.iter().filter(|e| judge(e, &limits, now).ruling == Ruling::Working).count();
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;

    let turns = best_of_five(|| {
        for _ in 0..LIVES {
            black_box(life(now));
        }
    });
    let transitions = f64::from(LIVES * TRANSITIONS) / turns / 1e6;

    let per_second = SANDBOXES as f64 / hot / 1e6;
    let pass_ms = pass * 1e3;
    println!("verdicts, one sandbox in cache    {per_second:>9.1} million/s");
    println!("one million sandboxes, one pass   {pass_ms:>9.1} ms (bound {BOUND_MS} ms)");
    println!("of these working                  {working:>9}");
    println!("allocations while judging         {allocations:>9} (bound 0)");
    println!("transitions of a task             {transitions:>9.1} million/s");
    println!("evidence of one sandbox           {:>9} bytes", size_of::<Evidence>());
    if pass_ms <= BOUND_MS && allocations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
