//! The shim as a program of its own, for tests and benches; the `belay` binary has it as a hidden
//! subcommand.

fn main() -> std::process::ExitCode {
    belay_sandbox::shim::main(std::env::args_os().skip(1))
}
