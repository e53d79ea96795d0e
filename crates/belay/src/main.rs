//! The one binary. Each subcommand is thin: it asks the server and prints what it says.

mod agents;
mod attempt;
mod cli;
mod compose;
mod config;
mod connect;
mod data;
mod demo;
mod doctor;
mod down;
mod fault;
mod follow;
mod git;
mod list;
mod log;
mod logs;
mod mcp;
mod merge;
mod new_task;
mod process;
mod render;
mod run;
mod screen;
mod show;
mod sim;
mod times;
mod tls;
mod token;
mod up;
mod verbs;
mod webhooks;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use config::{Config, Sources};
use connect::{Link, Start};
use data::Data;
use fault::{Exit, Fault};
use screen::{note, say, say_json};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    // The shim is small and synchronous, and runs beside every agent: nothing else is set up.
    if arguments.nth(1).is_some_and(|first| first == "shim") {
        return belay_sandbox::shim::main(arguments);
    }
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(command(cli));
            // What still runs is a thread that waits for somebody to type.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(Fault::failed(format!("the runtime cannot be started: {error}"))),
    };
    match ended {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(fault) => {
            note(&format!("belay: {fault}"));
            ExitCode::from(fault.exit as u8)
        }
    }
}

async fn command(cli: Cli) -> Result<Exit, Fault> {
    let data = Data::find(cli.shared.data_dir.as_deref())?;
    let json = cli.shared.json;
    match cli.command {
        Command::Up(up) => return up::up(&data, &up).await,
        Command::Down(down) => return down::down(&data, &down, json).await,
        Command::Run(run) => return run::run(&data, &run, json).await,
        Command::Demo(demo) => return demo::demo(&demo, json).await,
        Command::DemoAgent(agent) => return demo::agent(&agent).await,
        Command::Ask(ask) => return attempt::ask(&data, &ask, json).await,
        Command::SubmitResult(result) => return attempt::submit_result(&data, &result).await,
        Command::Mcp(mcp) => return mcp::mcp(&data, &mcp).await,
        Command::Sim(sim) => return sim::sim(&sim, json).await,
        Command::Doctor => return doctor::doctor(&data, json).await,
        Command::Config => return print_config(json),
        Command::Completions(completions) => {
            let mut script = Vec::new();
            clap_complete::generate(completions.shell, &mut Cli::command(), "belay", &mut script);
            screen::put(&script);
            return Ok(Exit::Done);
        }
        Command::Version => return version(&data, json).await,
        _ => {}
    }
    let mut link = Link::open(&data, Start::IfUsed).await?;
    match cli.command {
        Command::Ls(ls) => list::list(&mut link, &ls, json).await,
        Command::Show(show) => show::show(&mut link, &show, json).await,
        Command::Why(which) => show::why(&mut link, &which.task, json).await,
        Command::Logs(logs) => logs::logs(&mut link, &logs, json).await,
        Command::Token(command) => token::token(&mut link, &command, json).await,
        Command::Diff(attempt) => logs::diff(&mut link, &attempt).await,
        Command::Webhook(webhook) => webhooks::webhook(&mut link, &webhook, json).await,
        Command::Alerts => webhooks::alerts(&mut link, json).await,
        other => verbs::verb(&mut link, other, json).await,
    }
}

fn print_config(json: bool) -> Result<Exit, Fault> {
    let here = std::env::current_dir().ok();
    let repository = here.and_then(|here| git::Repository::around(&here));
    let config = Config::load(&Sources::here(repository.map(|found| found.top().to_owned())))?;
    let entries = config.entries();
    if json {
        say_json(&entries);
    } else {
        say(&config::table(&entries));
    }
    Ok(Exit::Done)
}

async fn version(data: &Data, json: bool) -> Result<Exit, Fault> {
    let client = env!("CARGO_PKG_VERSION");
    let server = match Link::open(data, Start::Never).await {
        Ok(link) => link.client().health().await.ok().map(|health| health.version),
        Err(_) => None,
    };
    if json {
        say_json(&serde_json::json!({ "client": client, "server": server }));
    } else {
        say(&format!("belay {client}"));
        say(&format!("server {}", server.as_deref().unwrap_or("not up")));
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests;
