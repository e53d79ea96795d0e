//! The shim as a program of its own, for the runner's tests.

fn main() -> std::process::ExitCode {
    belay_sandbox::shim::main(std::env::args_os().skip(1))
}
