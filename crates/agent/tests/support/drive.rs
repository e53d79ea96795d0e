//! A driver: runs a plan as a runner would, feeds the reader, writes what it asks for.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use belay_agent::{
    Exit, Interrupt, Judgement, Launch, LaunchPlan, Observation, Question, Reader, Seen, Stdin,
    Stdout, Turn,
};
use belay_kernel::Timestamp;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::time::{ClockId, clock_gettime};

use super::case::Place;

/// Longer than any of these turns takes, on a busy machine.
const TURN_LIMIT: Duration = Duration::from_secs(90);
/// How long an agent may linger after its turn.
const LINGER: Duration = Duration::from_secs(10);

/// What came of a run.
pub(crate) struct Run {
    pub(crate) seen: Vec<Seen>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) exit: Exit,
    pub(crate) judgement: Judgement,
    pub(crate) reader: Reader,
    /// The processor's time that reading took.
    pub(crate) reading: Duration,
}

impl Run {
    pub(crate) fn what(&self) -> impl Iterator<Item = &Observation> {
        self.seen.iter().map(|seen| &seen.what)
    }

    /// Everything about the run, for a failing test.
    pub(crate) fn story(&self) -> String {
        let seen: String = self.what().map(|what| format!("  {what:?}\n")).collect();
        format!("{:?} → {:?}\n{seen}stderr: {}", self.exit, self.judgement, self.stderr)
    }

    #[track_caller]
    pub(crate) fn succeeded(&self) -> &Self {
        assert_eq!(self.judgement, Judgement::Succeeded, "{}", self.story());
        self
    }
}

/// What a test does while the agent runs.
pub(crate) struct Hands<'a> {
    reader: &'a mut Reader,
    stdin: &'a mut Option<ChildStdin>,
    plan: &'a LaunchPlan,
    group: Pid,
}

impl Hands<'_> {
    /// Answers the question that is held.
    pub(crate) fn answer(&mut self, answer: &str) {
        let key = self.reader.questions().next().expect("a question is held").key.clone();
        let bytes = self.reader.answer(&key, answer).expect("the answer is taken");
        self.write(&bytes);
    }

    /// The question that is held, if one is.
    pub(crate) fn question(&self) -> Option<&Question> {
        self.reader.questions().next()
    }

    /// Ends the turn in the way that the plan says.
    pub(crate) fn interrupt(&mut self) {
        match self.plan.interrupt {
            Interrupt::Message => {
                let bytes = self.reader.interrupt().expect("the turn can be interrupted");
                self.write(&bytes);
            }
            Interrupt::Signal => {
                // A group that is gone needs no signal.
                let _ = kill_process_group(self.group, Signal::TERM);
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        // An agent that is gone cannot read; its exit says so.
        if let Some(stdin) = self.stdin {
            let _ = stdin.write_all(bytes).and_then(|()| stdin.flush());
        }
    }
}

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
}

/// How long this thread has worked, whatever else the machine does.
fn worked() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).unwrap())
}

/// Runs a launch to its end. `each` is called after every read and on every tick.
pub(crate) fn run(
    place: &Place,
    launch: &Launch,
    mut each: impl FnMut(&[Seen], &mut Hands<'_>),
) -> Run {
    let agent = place.case.agent();
    let plan = agent.plan(launch).expect("the launch is sound");
    let mut reader = agent.reader(launch);
    let output = place.root.join("stdout");
    let mut child = spawn(&plan, &output);
    let group = Pid::from_child(&child);
    let exited = Arc::new(AtomicBool::new(false));
    let bytes = match child.stdout.take() {
        Some(stdout) => pipe(stdout),
        None => tail(File::open(&output).unwrap(), Arc::clone(&exited)),
    };
    let stderr = pipe(child.stderr.take().unwrap());
    let mut stdin = child.stdin.take();
    let first = match &plan.stdin {
        Stdin::Whole(first) | Stdin::Open(first) => first.clone(),
    };
    let _ = stdin.as_mut().unwrap().write_all(&first);
    if matches!(plan.stdin, Stdin::Whole(_)) {
        stdin = None;
    }
    let (mut seen, mut stdout, mut done) = (Vec::new(), Vec::new(), 0);
    let mut reading = Duration::ZERO;
    let deadline = Instant::now() + TURN_LIMIT;
    let mut quiet_since = Instant::now();
    loop {
        match bytes.recv_timeout(Duration::from_millis(20)) {
            Ok(chunk) => {
                let before = worked();
                reader.push(now(), &chunk, &mut seen);
                reading += worked() - before;
                stdout.extend(chunk);
                quiet_since = Instant::now();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let mut hands = Hands { reader: &mut reader, stdin: &mut stdin, plan: &plan, group };
        for seen in &seen[done..] {
            if let Observation::Write(write) = &seen.what {
                hands.write(&write.bytes);
            }
        }
        done = seen.len();
        each(&seen, &mut hands);
        exited.store(child.try_wait().unwrap().is_some(), Ordering::SeqCst);
        let ended = matches!(reader.turn(), Turn::Ended(_));
        if ended {
            stdin = None;
        }
        let lingers = ended && quiet_since.elapsed() > LINGER;
        if lingers || Instant::now() > deadline {
            break;
        }
    }
    drop(stdin);
    let exit = end(&mut child, group, deadline);
    exited.store(true, Ordering::SeqCst);
    while let Ok(chunk) = bytes.recv_timeout(Duration::from_millis(500)) {
        reader.push(now(), &chunk, &mut seen);
        stdout.extend(chunk);
    }
    let judgement = reader.finish(now(), exit, &mut seen);
    let stderr = String::from_utf8_lossy(&stderr.try_iter().flatten().collect::<Vec<_>>()).into();
    assert_eq!(reader.taken(), stdout.len() as u64, "every byte is accounted for");
    Run { seen, stdout, stderr, exit, judgement, reader, reading }
}

fn spawn(plan: &LaunchPlan, output: &Path) -> Child {
    for directory in &plan.directories {
        fs::create_dir_all(directory).unwrap();
    }
    for file in &plan.files {
        fs::write(&file.path, &file.contents).unwrap();
    }
    let stdout = match plan.stdout {
        Stdout::Pipe => Stdio::piped(),
        Stdout::File => File::create(output).unwrap().into(),
    };
    Command::new(&plan.argv[0])
        .args(&plan.argv[1..])
        .env_clear()
        .envs(&plan.environment)
        .current_dir(&plan.work_dir)
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("the agent starts")
}

fn pipe(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (to, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count) = from.read(&mut buffer) {
            if count == 0 || to.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Reads a file while it grows, until its writer has exited.
fn tail(mut from: File, exited: Arc<AtomicBool>) -> Receiver<Vec<u8>> {
    let (to, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let over = exited.load(Ordering::SeqCst);
            match from.read(&mut buffer) {
                Ok(0) if over => break,
                Ok(0) => std::thread::sleep(Duration::from_millis(5)),
                Ok(count) if to.send(buffer[..count].to_vec()).is_ok() => {}
                Ok(_) | Err(_) => break,
            }
        }
    });
    receiver
}

/// Waits for the exit, and ends the group of an agent that does not come to it.
fn end(child: &mut Child, group: Pid, deadline: Instant) -> Exit {
    let patience = (Instant::now() + Duration::from_secs(5)).min(deadline);
    let mut status = child.try_wait().unwrap();
    while status.is_none() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(5));
        status = child.try_wait().unwrap();
    }
    // What is left of the group, also after an orderly exit, is ended.
    let _ = kill_process_group(group, Signal::KILL);
    match status {
        Some(status) => exit_of(status),
        None => {
            child.wait().unwrap();
            Exit::Ended
        }
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unseen,
    }
}
