//! Serves a script from a file, for trying an agent by hand: `serve PORT SCRIPT-FILE`. Prints what
//! it is asked.

use std::time::Duration;

use belay_model_server::{ModelServer, Script};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().ok_or("which port?")?.parse()?;
    let script: Script =
        std::fs::read_to_string(arguments.next().ok_or("which script?")?)?.parse()?;
    let server = ModelServer::start_on(port, script)?;
    let mut seen = 0;
    loop {
        server.wait_for(Duration::from_secs(1), |_| false);
        for request in server.requests().iter().skip(seen) {
            seen += 1;
            let mut out = std::io::stderr();
            std::io::Write::write_all(&mut out, format!("{request:?}\n").as_bytes())?;
        }
    }
}
