//! Judging allocates nothing, on the working path or on any other.
//!
//! The counter is global, so this file holds one test only: nothing else may run beside it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use belay_kernel::attempt::{self, Attempt};
use belay_kernel::deadline::{self, Pace, Reach, Stream};
use belay_kernel::evidence::Evidence;
use belay_kernel::tool::ToolKey;
use belay_kernel::verdict::{Ruling, clocks, judge};
use belay_kernel::{AttemptNumber, Epoch, EventKind, HeartbeatStatus, Limits, Switches, Timestamp};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged to the system's allocator, which upholds the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
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

#[test]
fn judging_allocates_nothing() {
    let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
    let (limits, switches) = (Limits::default(), Switches::default());
    let boxed = std::hint::black_box(Box::new(1));
    let count = || ALLOCATIONS.with(Cell::get);
    assert!(count() > 0, "the counter counts");
    drop(boxed);

    let before = count();
    let mut evidence = Evidence::new(at(0));
    evidence.tool_opened(ToolKey::of("build"), at(1));
    evidence.beat(HeartbeatStatus::Running, at(2));
    let working = judge(&evidence, &limits, at(3));
    let dead = judge(&evidence, &limits, at(3_000));
    evidence.seen(&EventKind::Completed, at(4));
    let gone = judge(&evidence, &limits, at(3_000));
    let shown = clocks(&evidence, &limits, at(5));
    let claimed = Attempt::claimed(AttemptNumber(1), Epoch(1), Timestamp::MAX, at(0));
    let running = claimed.step(attempt::Event::Start, at(0), &limits).accepted().unwrap_or(claimed);
    let mut stream = Stream::started(at(0), Pace::Partial);
    stream.output(at(1));
    let due = deadline::due(&running, &stream, Reach::Heard, &limits, &switches, at(2));
    let allocated = count() - before;

    assert_eq!(allocated, 0);
    assert_eq!(working.ruling, Ruling::Working);
    assert_eq!(dead.reasons.as_slice().len(), 3);
    assert_eq!(gone.ruling, Ruling::Gone);
    assert_eq!(shown.as_slice().len(), 2);
    assert_eq!(due, deadline::Due::At(Timestamp::from_millis(61_001)));
}
